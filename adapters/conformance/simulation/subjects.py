"""The revisions of a simulation: what belongs to each, and what its users remember."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weightctl.adapters.conformance.revisions import (
    contents,
    identity,
    members_of,
    reference_of,
)
from weightctl.adapters.conformance.simulation.script import Action, Setting
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import ManifestReference
from weightctl.controller.ports import RangedReader

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World


@dataclass(slots=True, eq=False)
class Subject:
    """One revision."""

    number: int
    identity: Identity
    data: dict[str, bytes]
    members: dict[str, Member]
    reference: ManifestReference
    leases: list[int] = field(default_factory=list)
    """Ids that its readers hold, or have forgotten to release."""
    heard_s: float = 0.0
    """When its writer last gave a sign of life."""
    aborted: bool = False

    @property
    def group_id(self) -> str:
        return payload_group_id(self.identity)


def new_subject(number: int, setting: Setting) -> Subject:
    of = identity(number)
    data = contents(of, setting.payloads, max(setting.size_bytes, 1), empty=setting.payloads // 3)
    return Subject(
        number=number,
        identity=of,
        data=data,
        members={member.key: member for member in members_of(of, data)},
        reference=reference_of(of, data),
    )


def subject_of(world: "World", action: Action) -> Subject:
    """The revision that an action is about."""
    return list(world.subjects.values())[action.of % len(world.subjects)]


@dataclass(slots=True)
class _Bytes:
    content: bytes
    size_bytes: int
    instance_id: str = "writer"

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return None


def source_of(content: bytes) -> Callable[[], AbstractAsyncContextManager[RangedReader]]:
    """An `open_source` of a writer that has the bytes at hand."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[RangedReader]:
        yield _Bytes(content, len(content))

    return opened
