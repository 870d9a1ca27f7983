"""Adoption: all or nothing, each obstacle told for its object, payloads never written."""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.plain_tier import PlainTier
from tests.support.rig import contents
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.controller.api.adoption import document
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.manifest import canonical_bytes
from weightctl.controller.core.manifest_codec import parse_manifest
from weightctl.controller.core.observation import (
    Member,
    Members,
    MemberState,
    ReplicaDetail,
    TierObservation,
)
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import (
    IntegrityError,
    ManifestError,
    NothingReadableError,
    UnknownOutcomeError,
    WeightError,
)
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Corrupt,
    Limiter,
    Outcome,
    Permanent,
    Unknown,
)
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.adopting import AdoptReport
from weightctl.controller.weightstore.candidate import parse_digests
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions

ID = Identity(namespace="prod", resource_id="m", revision="v1", weight_generation=1)
MODEL = random_tensors(rows=16)


@dataclass
class Odd:
    """What a tier says otherwise than its content would have it."""

    states: dict[str, MemberState] = field(default_factory=dict)
    recorded: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, list[Outcome]] = field(default_factory=dict)
    after_reading: Callable[[], None] = lambda: None


class DetailTier(PlainTier):
    """A plain tier that tells details; a replica's instance is named by its content."""

    def __init__(self, name: str, *, hot: bool) -> None:
        super().__init__(name, hot=hot)
        self.odd = Odd()

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        seen = await super().observe(members, detail=detail)
        states = bytearray(seen.states)
        details = {}
        for index, key in enumerate(members.keys):
            states[index] = self.odd.states.get(key, MemberState(states[index]))
            if states[index] == MemberState.PARTIAL or index not in detail:
                continue
            if states[index] and key in self.content:  # of an ABSENT one: something else
                content = self.content[key]
                details[index] = ReplicaDetail(
                    instance_id=hashlib.sha256(content).hexdigest(),
                    size_bytes=len(content),
                    sha256=self.odd.recorded.get(key),
                )
        return replace(seen, states=bytes(states), details=details)

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for member, outcome in zip(batch, await super().verify(batch, limit=limit), strict=True):
            said = self.odd.answers.get(member.key)
            if said:
                outcomes.append(said.pop(0))
            elif isinstance(outcome, Corrupt):
                outcomes.append(replace(outcome, instance_id=outcome.got.hex()))
            else:
                outcomes.append(outcome)
        self.odd.after_reading()
        return outcomes


@dataclass
class Bench:
    """Objects of a model in two tiers, which no revision manages."""

    store: WeightMetadataStore
    hot: DetailTier
    cold: DetailTier
    weights: WeightStore
    manifest: bytes
    keys: list[str]
    """Of the payloads."""

    @property
    def manifest_key(self) -> str:
        return parse_manifest(self.manifest).manifest_key

    async def adopt(self, **more: object) -> AdoptReport:
        return await self.weights.adopt(ID, self.manifest, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    """Import with one store, then forget it: what stays are objects in tiers."""
    hot, cold = DetailTier("memory", hot=True), DetailTier("disk", hot=False)
    clock, entropy = VirtualClock(), SeededEntropy(1)
    options = WeightStoreOptions(payload_bytes=1000, attempts=1, busy_s=0)
    source = await to_thread.run_sync(write_model, folder / "model.safetensors", MODEL)

    def over(store: WeightMetadataStore) -> WeightStore:
        return WeightStore(store, [hot, cold], clock=clock, entropy=entropy, options=options)

    async with WeightMetadataStore.open(folder / "old", clock=clock, entropy=entropy) as store:
        await over(store).put(ID, source)
        keys = (await store.directory.members(payload_group_id(ID))).keys
    async with WeightMetadataStore.open(folder / "new", clock=clock, entropy=entropy) as store:
        key = next(key for key in keys if key.endswith("/manifest"))
        payloads = [name for name in keys if name != key]
        yield Bench(store, hot, cold, over(store), hot.content[key], payloads)


async def test_what_the_tiers_hold_becomes_a_revision_that_can_be_read(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        before = dict(b.hot.content), dict(b.cold.content)
        report = await b.adopt()
        assert not report.obstacles
        record = report.record
        assert record is not None
        assert (record.availability, record.residency) == (Availability.READY, Residency.HOT)
        assert (report.told, report.recorded, report.durable) == (1, 0, True)
        assert (b.hot.content, b.cold.content) == before
        loaded = await b.weights.load(ID, verify=True)
        assert contents(loaded.tensors) == MODEL
        again = await b.adopt()
        assert (again.record, again.held) == (record, {}), "managed now: nothing to do"


@pytest.mark.parametrize(
    "hot, residency", [(None, Residency.COLD), (1, Residency.MIXED)], ids=["cold", "mixed"]
)
async def test_the_residency_is_the_one_that_was_seen(
    tmp_path: Path, hot: int | None, residency: Residency
) -> None:
    async with bench(tmp_path) as b:
        for key in b.keys[hot:] if hot else [*b.keys, b.manifest_key]:
            del b.hot.content[key]
        report = await b.adopt()
        assert report.record is not None
        assert report.record.residency is residency


async def test_a_manifest_object_that_no_tier_has_is_put_last(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for tier in (b.hot, b.cold):
            del tier.content[b.manifest_key]
            tier.fences.clear()
        b.hot.odd.states[b.keys[0]] = MemberState.PARTIAL
        assert (await b.adopt()).obstacles
        assert b.manifest_key not in b.hot.content, "not while anything is in the way"
        b.hot.odd.states.clear()
        report = await b.adopt()
        assert report.record is not None
        assert not report.manifest_seen
        assert set(report.held.values()) == {len(b.keys) + 1}, "with the manifest that was put"
        told = document(report, 0.0, dry=False)
        assert "no tier had the manifest object: it was put" in "".join(told["remarks"])
        assert told["digestsTold"] == 0, "the manifest's own needs nobody to tell it"
        assert b.hot.content[b.manifest_key] == b.cold.content[b.manifest_key] == b.manifest
        assert len(b.hot.fences) == len(b.cold.fences) == 1


def _lost(b: Bench) -> None:
    del b.hot.content[b.keys[1]], b.cold.content[b.keys[1]]


def _short(b: Bench) -> None:
    b.cold.content[b.keys[1]] += b"more"


def _another(b: Bench) -> None:
    b.cold.content[b.keys[1]] = b"hello world"
    b.cold.odd.states[b.keys[1]] = MemberState.ABSENT


def _written(b: Bench) -> None:
    b.hot.odd.states[b.keys[1]] = MemberState.PARTIAL


def _unknown(b: Bench) -> None:
    b.cold.odd.states[b.keys[1]] = MemberState.UNKNOWN


def _silent(b: Bench) -> None:
    b.cold.faults.silent = True


def _differs(b: Bench) -> None:
    b.cold.content[b.keys[1]] = b"\0" * len(b.cold.content[b.keys[1]])


def _rotten(b: Bench) -> None:
    b.hot.odd.recorded[b.keys[1]] = hashlib.sha256(b"as it was stored").digest()


def _other_manifest(b: Bench) -> None:
    b.cold.content[b.manifest_key] = b.manifest.replace(b'"F32"', b'"F16"')


def _unreadable(outcome: Outcome) -> Callable[[Bench], None]:
    def arrange(b: Bench) -> None:
        b.hot.odd.answers[b.keys[1]] = [outcome]

    return arrange


@pytest.mark.parametrize(
    "arrange, error, tier, why",
    [
        (_lost, NothingReadableError, "", "no tier shows"),
        (_short, IntegrityError, "disk", "the manifest says"),
        (_another, IntegrityError, "disk", "it has 11 bytes, the manifest says"),
        (_written, UnknownOutcomeError, "memory", "being written"),
        (_unknown, UnknownOutcomeError, "disk", "no whole answer"),
        (_silent, UnknownOutcomeError, "disk", "switched off"),
        (_differs, IntegrityError, "", "SHA-256: memory"),
        (_rotten, IntegrityError, "memory", "recorded when it was stored"),
        (_other_manifest, IntegrityError, "disk", "was told"),
        (_unreadable(Permanent(detail="no")), UnknownOutcomeError, "memory", "Permanent: no"),
        (_unreadable(Conflict(detail="gone")), UnknownOutcomeError, "memory", "Conflict: gone"),
        (_unreadable(Busy()), UnknownOutcomeError, "memory", "Busy"),
        (_unreadable(Unknown()), UnknownOutcomeError, "memory", "Unknown"),
        (
            _unreadable(Corrupt(expected=b"", got=b"\1" * 32, instance_id="other")),
            UnknownOutcomeError,
            "memory",
            "another replica",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_each_obstacle_is_told_in_three_parts_and_nothing_is_changed(
    tmp_path: Path,
    arrange: Callable[[Bench], None],
    error: type[Exception],
    tier: str,
    why: str,
) -> None:
    async with bench(tmp_path) as b:
        arrange(b)
        before = dict(b.hot.content), dict(b.cold.content)
        commits = b.store.commits
        report = await b.adopt()
        assert report.record is None
        (found,) = report.obstacles
        assert (type(found.error), found.tier) == (error, tier)
        assert why in found.error.why
        assert found.error.what
        assert found.error.todo
        assert found.key in ("" if arrange is _silent else found.error.what)
        assert (b.hot.content, b.cold.content) == before
        assert b.store.commits == commits
        assert b.store.record(identity=ID) is None


async def test_bytes_that_are_not_those_that_were_told_are_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        right = {key: hashlib.sha256(b.hot.content[key]).digest() for key in b.keys}
        wrong = right | {b.keys[0]: bytes(31) + b"\1"}
        refused = await b.adopt(digests=wrong)
        assert {(one.key, type(one.error)) for one in refused.obstacles} == {
            (b.keys[0], IntegrityError)
        }
        adopted = await b.adopt(digests=right)
        assert adopted.told == len(b.keys) + 1


async def test_what_changes_after_it_was_read_is_not_adopted(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:

        def change() -> None:
            b.cold.content[b.keys[0]] = bytes(len(b.cold.content[b.keys[0]]))

        b.cold.odd.after_reading = change
        with pytest.raises(UnknownOutcomeError, match="changed while it was being adopted"):
            await b.adopt()
        assert b.store.record(identity=ID) is None


@pytest.mark.parametrize(
    "spoil, error, why",
    [
        (lambda raw: raw + b" ", ManifestError, "canonical"),
        (lambda raw: raw[:-1], ManifestError, "strict JSON"),
        (lambda raw: raw.replace(b'"prod"', b'"test"'), WeightError, "its manifest is that of"),
        (lambda raw: raw.replace(b"weights/", b"models/"), WeightError, "names of their own"),
        (
            lambda raw: raw.replace(payload_group_id(ID).encode(), b"weight:" + b"0" * 64),
            WeightError,
            "payload group",
        ),
    ],
    ids=["spelled-otherwise", "cut", "of-another", "foreign-names", "other-tenant"],
)
async def test_a_manifest_of_something_else_is_refused(
    tmp_path: Path, spoil: Callable[[bytes], bytes], error: type[Exception], why: str
) -> None:
    async with bench(tmp_path) as b:
        spoiled = canonical_bytes(parse_manifest(b.manifest))
        assert spoiled == b.manifest
        with pytest.raises(error) as told:
            await b.weights.adopt(ID, spoil(b.manifest))
        assert why in str(told.value)
        assert b.store.record(identity=ID) is None


async def test_a_digest_of_no_object_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        with pytest.raises(WeightError, match="no payload of the manifest"):
            await b.adopt(digests={"strange": bytes(32)})


async def test_an_identity_that_is_known_otherwise_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.store.begin_import(identity=ID, expected_payload_count=1, expected_logical_bytes=1)
        with pytest.raises(WeightError, match="it is IMPORTING here already"):
            await b.adopt()


@pytest.mark.parametrize("text", ["no digest", f"{'0' * 64} k\n{'0' * 64}  k\n{'1' * 64}  k"])
def test_a_list_of_digests_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(WeightError, match="of the digests cannot be used"):
        parse_digests(text)


def test_a_list_of_digests_is_what_sha256sum_writes() -> None:
    text = f"{'ab' * 32}  a key\n\n{'00' * 32} *b\n"
    assert parse_digests(text) == {"a key": b"\xab" * 32, "b": bytes(32)}
