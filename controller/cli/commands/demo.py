"""`weightctl demo`.  Layer: cli."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from weightctl.controller.api.views import API_VERSION
from weightctl.controller.cli.demo.course import Points
from weightctl.controller.cli.demo.model import find_model, fingerprint
from weightctl.controller.cli.demo.sandbox import sandbox
from weightctl.controller.cli.demo.story import Story
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.units import size_text
from weightctl.controller.clock import SystemEntropy

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.demo.model import Fingerprint
    from weightctl.controller.cli.output import Console


def demo(args: argparse.Namespace, console: Console) -> int:
    """Tell the story, and print what was verified in it."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    source = find_model(args.source)
    expected = fingerprint(source)
    seed = int(SystemEntropy().token(4), 16) if args.seed is None else args.seed
    console.note(
        f"model: {source} ({len(expected.tensors)} tensors, {size_text(expected.size_bytes)});"
        f" seed of the kills: {seed}"
    )
    points = None if args.no_kill else Points(SystemEntropy(seed), args.rounds, args.kill_at)
    rounds: list[list[doc.DemoStep]] = []
    while len(rounds) < args.rounds and all(step["ok"] for told in rounds for step in told):
        if args.rounds > 1:
            console.note(f"\n=== round {len(rounds) + 1} of {args.rounds} ===")
        with sandbox(expected.size_bytes, keep=args.keep) as place:
            if args.keep:
                console.note(f"kept: {place.folder}")
            story = Story(place, source, expected, points=points, say=console.note)
            story.tell()
        rounds.append(_numbered(story.results, len(rounds) + 1))
    document = closing(source, expected, seed, rounds)
    console.note("")
    console.document(document)
    return ExitCode.OK if document["ok"] else ExitCode.ERROR


def closing(
    source: Path, expected: Fingerprint, seed: int, rounds: list[list[doc.DemoStep]]
) -> doc.Demo:
    """The closing table of all rounds."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Demo",
        "ok": all(step["ok"] for told in rounds for step in told),
        "source": str(source),
        "sizeBytes": expected.size_bytes,
        "tensors": len(expected.tensors),
        "seed": seed,
        "rounds": len(rounds),
        "results": _together(rounds),
    }


def _numbered(steps: list[doc.DemoStep], number: int) -> list[doc.DemoStep]:
    """The steps of one round; its kills know which."""
    for step in steps:
        for kill in step["killed"]:
            kill["round"] = number
    return steps


def _together(rounds: list[list[doc.DemoStep]]) -> list[doc.DemoStep]:
    """The last round's steps, with the kills of all rounds and the mean of their times."""
    last = rounds[-1]
    for index, step in enumerate(last):
        told = [steps[index] for steps in rounds]
        step["killed"] = [kill for other in told for kill in other["killed"]]
        step["kills"] = len(step["killed"])
        step["seconds"] = sum(other["seconds"] for other in told) / len(told)
    return last


def _as_interrupt(*_: object) -> None:
    """Let SIGTERM clean up like Ctrl-C does."""
    raise KeyboardInterrupt
