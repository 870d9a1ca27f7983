"""What lies in the bucket, proven to be our bucket, and what that means for a member.

ABSENT needs a listing that ran to its end between two sights of our own marker: a bucket that was
exchanged meanwhile must not answer for ours.
"""

from collections.abc import Collection, Sequence
from itertools import groupby

from anyio import Semaphore

from weightctl.controller.core.observation import Member, Members, MemberState, ReplicaDetail
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import InventoryItem
from weightctl_objectstore import names
from weightctl_objectstore.bucket import PAGE, Bucket
from weightctl_objectstore.medium import Medium
from weightctl_objectstore.names import Listing, Place
from weightctl_objectstore.spread import spread

ASKING_MAX = 16
"""Small requests at once, over all calls."""
FEW = 256
"""So many keys of a group that is longer than a page are asked for one by one."""


class Looking:
    """Questions to one bucket; all of them raise WeightctlError for no answer."""

    def __init__(self, bucket: Bucket, medium: Medium) -> None:
        self._bucket = bucket
        self._medium = medium
        self.slots = Semaphore(ASKING_MAX)

    async def at(self, group_id: str, keys: Collection[str]) -> tuple[str, Listing]:
        """The epoch, and the copies under these keys of a group."""
        epoch = await self._medium.epoch()
        found = await self.unproven(group_id, keys)
        await self._still(epoch)
        return epoch, found

    async def at_members(self, batch: Sequence[Member]) -> Listing:
        """The copies of the members of a batch, of whatever groups."""
        found = Listing()
        by_group = sorted(batch, key=lambda member: member.group_id)
        for group_id, members in groupby(by_group, key=lambda member: member.group_id):
            found.update((await self.at(group_id, [member.key for member in members]))[1])
        return found

    async def everywhere(self, group_id: str | None) -> Listing:
        """All copies of a group, or of all groups."""
        part = None if group_id is None else names.encode(group_id)
        epoch = await self._medium.epoch()
        found = await self._bucket.listing(names.folder_of(part))
        await self._still(epoch)
        return found

    async def unproven(self, group_id: str, keys: Collection[str]) -> Listing:
        """As `at`, for who only asks for what is there: one listing of the group.

        Of a group longer than a page, of which few keys are asked, it is one listing a key.
        """
        folder = names.folder_of(names.encode(group_id))
        found = Listing()
        async for page in self._bucket.pages(folder):
            if len(page) == PAGE and len(keys) <= FEW:
                break
            found.add(page)
        else:
            return found
        found = Listing()

        async def look_at(key: str) -> None:
            async for page in self._bucket.pages(f"{folder}/{names.encode(key)}"):
                found.add(page)

        await spread(list(keys), look_at, self.slots)
        return found

    async def text_of(self, part: str) -> str:
        """The group id or key that a part of a name stands for."""
        text = names.decode(part)
        if text is not None:
            return text
        kept = await self._bucket.get(names.name_of_text(part))
        if kept is None:
            what = f"the text of {names.name_of_text(part)}"
            raise TransientError(what, "the object is missing", "see what removed it")
        return names.text_of(kept[0])

    async def items(self, group_id: str | None) -> dict[str, list[InventoryItem]]:
        """`everywhere` as the port's inventory."""
        found = await self.everywhere(group_id)
        listed: dict[str, list[InventoryItem]] = {}
        for place in found.places():
            group, key = await self.text_of(place[0]), await self.text_of(place[1])
            items = listed.setdefault(group, [])
            for replica in found.at(place):
                item = InventoryItem(
                    key=key,
                    instance_id=replica.instance_id,
                    size_bytes=replica.size_bytes,
                    state="quarantined" if replica.hidden else "complete",
                )
                items.append(item)
        for items in listed.values():
            items.sort(key=lambda item: (item.key, item.instance_id))
        return listed

    async def _still(self, epoch: str) -> None:
        if await self._medium.epoch() != epoch:
            raise TransientError("the listing", "the medium was exchanged meanwhile", "try again")


def judge(
    members: Members, detail: Sequence[int], found: Listing, writing: Collection[Place]
) -> tuple[bytes, dict[int, ReplicaDetail]]:
    """A state for each member, and details of those that are there."""
    group = names.encode(members.group_id)
    states = bytearray(len(members))
    details = {}
    wanted = set(detail)
    for index, key in enumerate(members.keys):
        place = (group, names.encode(key))
        replica = found.seen(place, members.digest(index))
        if replica is not None:
            states[index] = MemberState.COMPLETE
            if index in wanted:
                details[index] = ReplicaDetail(
                    instance_id=replica.instance_id,
                    size_bytes=replica.size_bytes,
                    sha256=replica.sha256,
                )
        elif place in writing:
            states[index] = MemberState.PARTIAL
        else:
            states[index] = MemberState.ABSENT
    return bytes(states), details
