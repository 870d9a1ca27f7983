"""The client library of a simulated process: the imitated one over the simulated network."""

from hashlib import sha256
from typing import Any

from tests.sim.mooncake.seams import here
from tests.sim.mooncake.threads import wait
from tests.support.mooncake import fake_client
from tests.support.mooncake.fake_client import ObjectDataType, ReplicateConfig
from weightctl.controller.errors import TransientError

__all__ = ["MooncakeDistributedStore", "ObjectDataType", "OnDisk", "ReplicateConfig"]


class MooncakeDistributedStore(fake_client.MooncakeDistributedStore):
    """One client, owned by the simulated process in whose context it is called."""

    def setup(self, **options: Any) -> int:
        super().setup(**options)
        process = here()
        self._id = process.new_client()
        return 0

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        process = here()
        network = process.moon.network
        process.takes_lease(name)
        return wait(
            lambda: network.rpc(
                process.act(), lambda: network.cluster.call(name, *args, **kwargs), self._timeout_s
            )
        )


class OnDisk(fake_client.OnDisk):
    """The hosts of the simulated cluster lend their files."""

    def __init__(self, *given: Any) -> None:
        """Without a client of its own."""

    def digest(self, endpoint: str, key: str, *given: Any) -> tuple[bytes, int]:
        network = here().moon.network
        try:
            got = wait(lambda: network.file(endpoint, key))
        except OSError as error:
            raise TransientError(f"the file of the host at {endpoint}", f"{error}") from error
        return sha256(got).digest(), self.LENT_MS
