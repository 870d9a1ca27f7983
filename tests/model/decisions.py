"""The contract's decision tables as an independent model of the weight state.

A request is a name with arguments. `Model.ask` walks its table from top to bottom, and the
first line whose condition holds decides: an error code, a no-op, or the change that the last line
makes. Everything here is plain dictionaries, lists and numbers: nothing of the product is imported,
so that both cannot be wrong in the same way. A driver of the real thing answers the same requests
in the same plain form.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TOP = 2**64 - 1
DAY_MS = 86_400_000

Row = dict[str, Any]
Answer = tuple[str, Any]
"""("error", code name) or ("ok", plain value)."""

INVALID, NOT_FOUND, CONFLICT = "INVALID_ARGUMENT", "NOT_FOUND", "CONFLICT"
STALE, NOT_READY, BUSY = "STALE_GENERATION", "NOT_READY", "BUSY"
EXPIRED, EXHAUSTED, NO_OP = "LEASE_EXPIRED", "GENERATION_EXHAUSTED", "no-op"

IDLE = ("NONE", 0)
LIVE_STATES = ("READY", "DEGRADED")
KIND = {"COLD": "EVICTING", "HOT": "REHYDRATING"}


@dataclass(frozen=True)
class Name:
    """What the model must know of an identity: whether it is valid and whether its key fits."""

    label: str
    tenant: str
    listing: tuple[Any, ...]
    """(tenant, namespace, resource) and the row's order within it."""
    valid: bool = True
    fits: bool = True

    def __repr__(self) -> str:
        return self.label


@dataclass
class Facts:
    """What the tables ask about: the request, and the records that it reaches."""

    model: "Model"
    request: Row
    now: int
    rev: Row | None = None
    op: Row | None = None
    lease: Row | None = None

    def __getitem__(self, key: str) -> Any:
        return self.request[key]

    @property
    def gen(self) -> int:
        return self.rev["gen"] if self.rev else 0

    @property
    def av(self) -> str:
        return self.rev["av"] if self.rev else ""

    @property
    def absent(self) -> bool:
        return self.rev is None

    @property
    def bad_call(self) -> bool:
        return not self["name"].valid or not 1 <= self["expected"] <= TOP

    @property
    def stale(self) -> bool:
        return bool(self.gen != self["expected"])

    @property
    def retry(self) -> bool:
        return self.gen - self["expected"] in (0, 1)

    @property
    def spent(self) -> bool:
        return self.gen >= TOP - 1

    @property
    def working(self) -> bool:
        return self.rev is not None and self.rev["op"] != "NONE"

    @property
    def live(self) -> list[Row]:
        return self.model.live(self["name"], self.now)

    @property
    def is_current(self) -> bool:
        return (
            self.rev is not None
            and self.op is not None
            and (self.rev["op"], self.rev["op_id"]) == (self.op["kind"], self.op["id"])
            and self.op["message"] != "completed"
        )

    @property
    def repairs(self) -> bool:
        return self.op is not None and self.op["kind"] == "REPAIRING"

    @property
    def repairs_cold(self) -> bool:
        """A repair towards COLD ends wherever the members lie when they have their cold copies."""
        return self.op is not None and self.repairs and self.op["target"] == "COLD"

    @property
    def ends_here(self) -> bool:
        return self.op is not None and (self.op["target"] == self["res"] or self.repairs_cold)

    def running_is(self, kind: str, target: str) -> bool:
        if self.rev is None:
            return False
        op = self.model.ops.get(self.rev["op_id"])
        return op is not None and (op["kind"], op["target"]) == (kind, target)

    def counts(self, count: int, size: int) -> bool:
        return self.rev is not None and (
            (self.rev["ref"]["count"], self.rev["ref"]["bytes"]) == (count, size)
        )

    def declares(self, ref: Row) -> bool:
        assert self.rev is not None
        return all(self.rev["ref"][key] == ref[key] for key in ("group", "count", "bytes"))


Line = tuple[str, Callable[[Facts], Any]]


def bad_ref(f: Facts) -> bool:
    """Whether the request's reference is not whole or not the canonical one."""
    return bool(not f["name"].fits or f["ref"]["sha"] == "bad" or not f["ref"]["canonical"])


def starts(kind: Callable[[Facts], str], blocked: list[Line]) -> list[Line]:
    """Give the table of a start; `blocked` is what differs between the kinds of work."""
    return [
        (INVALID, lambda f: f.bad_call or f["target"] not in KIND),
        (NOT_FOUND, lambda f: f.absent),
        (BUSY, lambda f: f.working and not f.running_is(kind(f), f["target"])),
        (STALE, lambda f: f.working and not f.retry),
        (NO_OP, lambda f: f.working),
        (STALE, lambda f: f.stale),
        *blocked,
        (EXHAUSTED, lambda f: f.spent or not 0 < f.model.next_op < TOP),
        (
            NOT_READY,
            lambda f: f["members"] > TOP or f["members"] != f.rev["ref"]["count"] + 1,
        ),
    ]


def lease_id_bad(f: Facts) -> bool:
    return bool(f["tenant"].startswith("_") or not 1 <= f["id"] <= TOP)


def bad_ttl(f: Facts) -> bool:
    return not 1 <= f["ttl"] <= DAY_MS


def foreign(f: Facts) -> bool:
    return f.lease is not None and f.lease["name"].tenant != f["tenant"]


TABLES: dict[str, list[Line]] = {
    "begin": [
        (INVALID, lambda f: not f["name"].valid or not f["name"].fits),
        (INVALID, lambda f: not 1 <= f["count"] <= TOP or not 1 <= f["bytes"] <= TOP),
        (
            NO_OP,
            lambda f: f.av in ("IMPORTING", "READY") and f.counts(f["count"], f["bytes"]),
        ),
        (CONFLICT, lambda f: not f.absent),
    ],
    "commit": [
        (INVALID, lambda f: f.bad_call or bad_ref(f)),
        (NOT_FOUND, lambda f: f.absent),
        (CONFLICT, lambda f: f.av == "READY" and f.rev["ref"] != f["ref"]),  # type: ignore[index]
        (STALE, lambda f: f.av == "READY" and not f.retry),
        (NO_OP, lambda f: f.av == "READY"),
        (STALE, lambda f: f.stale),
        (CONFLICT, lambda f: f.av != "IMPORTING" or not f.declares(f["ref"])),
        (EXHAUSTED, lambda f: f.spent),
    ],
    "abort": [
        (INVALID, lambda f: f.bad_call),
        (NOT_FOUND, lambda f: f.absent),
        (NO_OP, lambda f: f.av == "DELETING" and f.retry),
        (STALE, lambda f: f.av == "DELETING" or f.stale),
        (CONFLICT, lambda f: f.av != "IMPORTING"),
        (EXHAUSTED, lambda f: f.spent),
    ],
    "delete": [
        (INVALID, lambda f: f.bad_call),
        (NOT_FOUND, lambda f: f.absent),
        (NO_OP, lambda f: f.av in ("DELETING", "DELETED") and f.retry),
        (STALE, lambda f: f.av in ("DELETING", "DELETED") or f.stale),
        (BUSY, lambda f: f.live or f.working),
        (NOT_READY, lambda f: f.av not in LIVE_STATES),
        (EXHAUSTED, lambda f: f.spent),
    ],
    "finish_delete": [
        (INVALID, lambda f: f.bad_call),
        (NOT_FOUND, lambda f: f.absent),
        (NO_OP, lambda f: f.av == "DELETED" and f.retry),
        (STALE, lambda f: f.av == "DELETED" or f.stale),
        (CONFLICT, lambda f: f.av != "DELETING"),
        (EXHAUSTED, lambda f: f.spent),
    ],
    "observe": [
        (INVALID, lambda f: f.bad_call or (f["av"], f["res"]) == ("READY", "ABSENT")),
        (NOT_FOUND, lambda f: f.absent),
        (STALE, lambda f: f.stale),
        (BUSY, lambda f: f.working or f.av not in LIVE_STATES),
        (INVALID, lambda f: f["av"] not in LIVE_STATES or f["res"] == "UNKNOWN"),
        (NO_OP, lambda f: (f.av, f.rev["res"]) == (f["av"], f["res"])),  # type: ignore[index]
        (EXHAUSTED, lambda f: f.spent),
    ],
    "acquire": [
        (INVALID, lambda f: f.bad_call or not f["holder"] or bad_ttl(f)),
        (NOT_FOUND, lambda f: f.absent),
        (STALE, lambda f: f.stale),
        (NOT_READY, lambda f: f.av != "READY"),
        (BUSY, lambda f: f.working),
        (NO_OP, lambda f: any(lease["holder"] == f["holder"] for lease in f.live)),
        (EXHAUSTED, lambda f: not 0 < f.model.next_lease < TOP),
    ],
    "renew": [
        (INVALID, lambda f: lease_id_bad(f) or bad_ttl(f)),
        (NOT_FOUND, lambda f: f.lease is None or foreign(f)),
        (EXPIRED, lambda f: f.lease["expires"] <= f.now),  # type: ignore[index]
        (NOT_READY, lambda f: f.av != "READY"),
        (BUSY, lambda f: f.working and f.rev["op"] != "REPAIRING"),  # type: ignore[index]
    ],
    "release": [
        (INVALID, lease_id_bad),
        (NO_OP, lambda f: f.lease is None),
        (NOT_FOUND, foreign),
    ],
    "expire": [
        (INVALID, lambda f: f["name"] is not None and not f["name"].valid),
    ],
    "start": starts(
        lambda f: KIND[f["target"]],
        [
            (NOT_READY, lambda f: f.av not in LIVE_STATES),
            (BUSY, lambda f: f.live),
        ],
    ),
    "repair": starts(
        lambda _: "REPAIRING",
        [(NOT_READY, lambda f: f.av != "DEGRADED" and not (f.av == "READY" and f["short"]))],
    ),
    "progress": [
        (INVALID, lambda f: not 1 <= f["id"] <= TOP or not 1 <= f["total"] <= TOP),
        (INVALID, lambda f: not 0 <= f["processed"] <= f["total"] or f["cursor"] == "\n"),
        (INVALID, lambda f: f["av"] not in LIVE_STATES),
        (NOT_FOUND, lambda f: f.op is None or f.absent),
        (CONFLICT, lambda f: not f.is_current),
        (INVALID, lambda f: f["res"] == "UNKNOWN" or (f["av"], f["res"]) == ("READY", "ABSENT")),
        (NO_OP, lambda f: not f.model.moved(f) and f.model.marks(f) == f.model.stored(f)),
        (EXHAUSTED, lambda f: f.model.moved(f) and f.spent),
    ],
    "finish": [
        (INVALID, lambda f: not 1 <= f["id"] <= TOP),
        (INVALID, lambda f: f["res"] not in KIND and not (f.repairs and f["res"] == "MIXED")),
        (NOT_FOUND, lambda f: f.op is None or f.absent),
        (NO_OP, lambda f: not f.working and f.rev["res"] == f["res"]),  # type: ignore[index]
        (CONFLICT, lambda f: not f.is_current),
        (NOT_READY, lambda f: not f.ends_here),
        (EXHAUSTED, lambda f: f.spent),
    ],
    "get": [
        (INVALID, lambda f: not f["name"].valid),
        (NOT_FOUND, lambda f: f.absent),
    ],
    "list": [
        (INVALID, lambda f: not 1 <= f["limit"] <= 1000),
    ],
    "query": [
        (INVALID, lease_id_bad),
        (NOT_FOUND, lambda f: f.op is None or f.op["name"].tenant != f["tenant"]),
    ],
}


DECIDED: Counter[tuple[str, int, str]] = Counter()
"""How often each line decided, over all models: a line that never did was not tested."""


@dataclass
class Model:
    """The records as plain rows, and what each request's last line does to them."""

    revs: dict[Name, Row] = field(default_factory=dict)
    leases: dict[int, Row] = field(default_factory=dict)
    ops: dict[int, Row] = field(default_factory=dict)
    next_lease: int = 1
    next_op: int = 1

    def ask(self, request: Row, now: int) -> Answer:
        """Answer one request at a wall-clock time in milliseconds."""
        facts = self.facts(request, now)
        for number, (verdict, holds) in enumerate(TABLES[request["call"]]):
            if holds(facts):
                DECIDED[request["call"], number, verdict] += 1
                if verdict != NO_OP:
                    return "error", verdict
                return "ok", getattr(self, f"again_{request['call']}", self.again)(facts)
        return "ok", getattr(self, f"do_{request['call']}")(facts)

    def facts(self, request: Row, now: int) -> Facts:
        lease = op = None
        name = request.get("name")
        if request["call"] in ("renew", "release"):
            lease = self.leases.get(request["id"])
            name = lease["name"] if lease else None
        if request["call"] in ("progress", "finish", "query"):
            op = self.ops.get(request["id"])
            name = op["name"] if op else None
        rev = None if name is None else self.revs.get(name)
        return Facts(model=self, request=request, now=now, rev=rev, op=op, lease=lease)

    def live(self, name: Name, now: int) -> list[Row]:
        return [
            lease
            for lease in self.leases.values()
            if lease["name"] == name
            and lease["expires"] > now
            and lease["fence"] <= self.revs[name]["gen"]
        ]

    def bump(self, f: Facts, **changes: Any) -> Row:
        assert f.rev is not None
        f.rev.update(changes, gen=f.rev["gen"] + 1, updated=max(f.rev["updated"], f.now))
        return dict(f.rev)

    # --- retries ----------------------------------------------------------------------------------

    def again(self, f: Facts) -> Row:
        assert f.rev is not None
        return dict(f.rev)

    def again_acquire(self, f: Facts) -> Row:
        own = [lease for lease in f.live if lease["holder"] == f["holder"]]
        return dict(max(own, key=lambda lease: lease["expires"]))

    def again_release(self, _: Facts) -> None:
        return None

    def again_start(self, f: Facts) -> Row:
        assert f.rev is not None
        return dict(self.ops[f.rev["op_id"]])

    again_repair = again_start

    def again_progress(self, f: Facts) -> Row:
        assert f.op is not None
        return dict(f.op)

    again_finish = again_progress

    # --- revisions --------------------------------------------------------------------------------

    def do_begin(self, f: Facts) -> Row:
        ref = {
            "group": f["name"].label,
            "count": f["count"],
            "bytes": f["bytes"],
            "sha": "",
            "canonical": False,
        }
        row = {"name": f["name"], "ref": ref, "av": "IMPORTING", "res": "UNKNOWN", "gen": 1}
        row |= {"op": "NONE", "op_id": 0, "created": f.now, "updated": f.now}
        self.revs[f["name"]] = row
        return dict(row)

    def do_commit(self, f: Facts) -> Row:
        return self.bump(f, ref=f["ref"], av="READY", res="HOT")

    def do_abort(self, f: Facts) -> Row:
        return self.bump(f, av="DELETING")

    def do_delete(self, f: Facts) -> Row:
        self.leases = {i: row for i, row in self.leases.items() if row["name"] != f["name"]}
        return self.bump(f, av="DELETING")

    def do_finish_delete(self, f: Facts) -> Row:
        return self.bump(f, av="DELETED", res="ABSENT")

    def do_observe(self, f: Facts) -> Row:
        return self.bump(f, av=f["av"], res=f["res"])

    # --- leases -----------------------------------------------------------------------------------

    def do_acquire(self, f: Facts) -> Row:
        row = {"id": self.next_lease, "name": f["name"], "holder": f["holder"]}
        row |= {"expires": min(f.now + f["ttl"], TOP), "fence": f["expected"]}
        self.leases[self.next_lease] = row
        self.next_lease += 1
        return dict(row)

    def do_renew(self, f: Facts) -> Row:
        assert f.lease is not None
        f.lease["expires"] = max(f.lease["expires"], min(f.now + f["ttl"], TOP))
        return dict(f.lease)

    def do_release(self, f: Facts) -> None:
        del self.leases[f["id"]]

    def do_expire(self, f: Facts) -> list[int]:
        dead = [
            number
            for number, lease in sorted(self.leases.items())
            if lease["expires"] <= f.now and f["name"] in (None, lease["name"])
        ]
        for number in dead:
            del self.leases[number]
        return dead

    # --- operations -------------------------------------------------------------------------------

    def do_start(self, f: Facts) -> Row:
        return self.run(f, KIND[f["target"]])

    def do_repair(self, f: Facts) -> Row:
        return self.run(f, "REPAIRING")

    def run(self, f: Facts, kind: str) -> Row:
        rev = self.bump(f, op=kind, op_id=self.next_op)
        row = {"id": self.next_op, "name": f["name"], "kind": kind, "target": f["target"]}
        row |= {"fence": rev["gen"], "started": rev["updated"], "updated": rev["updated"]}
        row |= {"processed": 0, "total": f["members"], "cursor": "", "message": ""}
        self.ops[self.next_op] = row
        self.next_op += 1
        return dict(row)

    def moved(self, f: Facts) -> bool:
        assert f.rev is not None
        return (f.rev["av"], f.rev["res"]) != (f["av"], f["res"])

    def stored(self, f: Facts) -> tuple[int, int, str]:
        assert f.op is not None
        return f.op["processed"], f.op["total"], f.op["cursor"]

    def marks(self, f: Facts) -> tuple[int, int, str]:
        processed, total, cursor = self.stored(f)
        forward = f["processed"] > processed
        return (
            max(processed, f["processed"]),
            max(total, f["total"]),
            f["cursor"] if forward else cursor,
        )

    def do_progress(self, f: Facts) -> Row:
        assert f.rev is not None
        assert f.op is not None
        f.now = max(f.now, f.op["updated"])
        processed, total, cursor = self.marks(f)
        if self.moved(f):
            rev = self.bump(f, av=f["av"], res=f["res"])
            f.op.update(fence=rev["gen"], updated=rev["updated"])
        else:
            f.op.update(updated=f.now)
        f.op.update(processed=processed, total=total, cursor=cursor)
        return dict(f.op)

    def do_finish(self, f: Facts) -> Row:
        assert f.op is not None
        f.now = max(f.now, f.op["updated"])
        rev = self.bump(f, av="READY", res=f["res"], op="NONE", op_id=0)
        f.op.update(processed=f.op["total"], cursor="", message="completed")
        f.op.update(updated=rev["updated"])
        return dict(f.op)

    # --- reads ------------------------------------------------------------------------------------

    def do_get(self, f: Facts) -> Row:
        live = f.live
        nearest = min((lease["expires"] for lease in live), default=None)
        assert f.rev is not None
        return {**f.rev, "live": len(live), "nearest": nearest}

    def do_list(self, f: Facts) -> tuple[list[Name], bool]:
        resource, limit, after = f["resource"], f["limit"], f["after"]
        names = sorted(
            (name for name in self.revs if name.listing[:3] == resource),
            key=lambda name: name.listing[3:],
        )
        rest = [name for name in names if after is None or name.listing[3:] > after]
        return rest[:limit], len(rest) > limit

    def do_query(self, f: Facts) -> Row:
        assert f.op is not None
        return dict(f.op)
