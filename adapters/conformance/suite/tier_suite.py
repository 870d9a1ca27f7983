"""The whole suite in one class.  Layer: conformance."""

from weightctl.adapters.conformance.suite.cancelled import ContractOfCancellation
from weightctl.adapters.conformance.suite.capabilities import ContractOfCapabilities
from weightctl.adapters.conformance.suite.faults import ContractUnderFaults
from weightctl.adapters.conformance.suite.hanging import ContractOfHangingMedia
from weightctl.adapters.conformance.suite.histories import ContractOfHistories
from weightctl.adapters.conformance.suite.leaks import ContractOfLeaks
from weightctl.adapters.conformance.suite.life import ContractOfLife
from weightctl.adapters.conformance.suite.looking import ContractOfAsking, ContractOfLooking
from weightctl.adapters.conformance.suite.loop import ContractOfTheLoop
from weightctl.adapters.conformance.suite.media import ContractOfMedia
from weightctl.adapters.conformance.suite.owners import ContractOfOwners
from weightctl.adapters.conformance.suite.removal import ContractOfRemoval
from weightctl.adapters.conformance.suite.replicas import ContractOfReplicas
from weightctl.adapters.conformance.suite.sources import ContractOfSources


class TierSuite(
    ContractOfReplicas,
    ContractOfRemoval,
    ContractOfCapabilities,
    ContractOfCancellation,
    ContractOfMedia,
    ContractOfHangingMedia,
    ContractOfSources,
    ContractOfOwners,
    ContractOfLife,
    ContractOfHistories,
    ContractOfLooking,
    ContractOfTheLoop,
    ContractOfLeaks,
    ContractUnderFaults,
    ContractOfAsking,
):
    """Every case.  A runner subclasses it as `Test...` and names its `harness_type`.

    pytest goes from the last base to the first, and a report names what is broken in that order:
    last stands what makes others fail, which only compare a medium before and after.
    """
