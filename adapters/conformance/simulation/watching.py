"""Lets the judges see each pass, each answer that it takes in, and each change that is visible."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from weightctl.adapters.conformance.simulation.traces import PASS, PassTrace
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import TierObservation
from weightctl.controller.core.planner import plan
from weightctl.controller.ports import Outcome
from weightctl.controller.runtime.reconciler import PassReport
from weightctl.controller.runtime.survey import Answer, Question

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.process import Process


def watch(process: "Process") -> None:
    """Put the judges between the parts of a process that has just started."""
    _passes(process)
    _gate(process)
    _survey(process)
    _dispatch(process)
    process.store.subscribe(partial(process.world.judge.visible, process))


def _passes(process: "Process") -> None:
    world, reconciler = process.world, _any(process.controller._reconciler)
    reconcile, ask, report = reconciler.reconcile, reconciler.ask, reconciler._report

    def reported(done: PassReport) -> None:
        record, made = done.record, done.plan
        world.seen.add(("state", record.availability.name, record.operation.name))
        if made is not None:
            world.seen.add(("verdict", made.verdict.name))
            world.seen.update(("reason", str(step.reason)) for step in made.steps)
            world.seen.update(("reason", str(wait.reason)) for wait in made.waits)
        for outcome in done.tally.reasons:
            world.seen.add(("outcome", outcome))
        report(done)

    async def watched(identity: Identity) -> Any:
        trace = PassTrace(identity, world.loop.time())
        world.judge.pass_begins(process, trace)
        token = PASS.set(trace)
        try:
            return await reconcile(identity)
        finally:
            PASS.reset(token)
            world.judge.pass_ends(process, trace)

    async def asked(identity: Identity) -> Any:
        token = PASS.set(PassTrace(identity, world.loop.time(), dry=True))
        try:
            return await ask(identity)
        finally:
            PASS.reset(token)

    reconciler.reconcile, reconciler.ask, reconciler._report = watched, asked, reported


def _gate(process: "Process") -> None:
    gate = _any(process.controller._observer.gate)
    judge = gate.judge

    def judged(tier: str, group_id: str, seen: TierObservation, *rest: Any, **more: Any) -> Any:
        process.world.judge.pictured(process, tier, group_id, seen)
        return judge(tier, group_id, seen, *rest, **more)

    gate.judge = judged


def _survey(process: "Process") -> None:
    survey = _any(process.controller._survey)
    answer = survey.answer

    async def answered(question: Question) -> Answer:
        """The plan follows from the situation alone, in a pass and in a dry run alike."""
        policy = process.policy
        found: Answer = await answer(question)
        process.world.judge.planned(process, policy)
        if plan(found.situation) != found.plan:
            process.world.violate("dry-run", f"two plans of one situation: {found.plan}")
        return found

    survey.answer = answered


def _dispatch(process: "Process") -> None:
    dispatch = _any(process.controller._dispatch)
    send = dispatch.send

    async def sent(work: Any, ticket: Any, asked: int, call: Any) -> list[Outcome]:
        answers: list[Sequence[Outcome]] = []

        async def kept() -> Sequence[Outcome]:
            answers.append(await call())
            return answers[-1]

        outcomes: list[Outcome] = await send(work, ticket, asked, kept)
        process.world.judge.matched(asked, answers[0] if answers else (), outcomes)
        return outcomes

    dispatch.send = sent


def _any(part: object) -> Any:
    """A part of the product whose methods are exchanged."""
    return part
