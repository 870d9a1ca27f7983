"""Cases of the event loop, which a tier shares with all others.  Layer: conformance."""

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    item_of,
    member_of,
    members_of,
    read_all,
)
from weightctl.adapters.conformance.suite.watching import watched
from weightctl.controller.ports import PIECE_BYTES

MEMBERS = 10_000


class ContractOfTheLoop(TierCases):
    """No call holds it up: a tier that does stops every other tier, the API and the leases."""

    grade = Grade.GOLD

    async def test_no_call_holds_up_the_loop(self, harness: TierHarness) -> None:
        content = content_of(2 * PIECE_BYTES)
        member, other = member_of("payload", content), member_of("other", content)
        table = members_of([member_of(f"{number:05d}", b"") for number in range(MEMBERS)])
        with watched() as watch:
            tier = harness.tier()
            await watch.call("entering", tier.__aenter__())
            try:
                batch = [item_of(member, content), item_of(other, content)]
                await watch.call("store", tier.store(batch, fence()))
                await watch.call("observe", tier.observe(table, detail=range(0, MEMBERS, 10)))
                await watch.call("verify", tier.verify([member]))
                await watch.call("open", read_all(tier, member))
                await watch.call("inventory", tier.inventory())
                await watch.call("capacity", tier.capacity())
                items = [await drop_item(tier, member), await drop_item(tier, other)]
                await watch.call("quarantine", tier.quarantine(items[:1], fence()))
                await watch.call("drop", tier.drop(items, fence()))
            finally:
                await watch.call("leaving", tier.__aexit__(None, None, None))
        assert not watch.held, "\n".join(watch.held)
