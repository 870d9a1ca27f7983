"""Which branches of the loop, the planner and the store histories took, by coverage.py."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coverage import Coverage

MEASURED = ("*/controller/core/*", "*/controller/runtime/*", "*/controller/store/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """What was taken in all, and by file: name, taken, all, lines with one that was not."""

    taken: int
    total: int
    files: tuple[tuple[str, int, int, tuple[int, ...]], ...]


@contextmanager
def measured(folder: Path | None, name: str) -> Iterator[None]:
    """Measure a block into a file of the folder; without one nothing is measured."""
    if folder is None:
        yield
        return
    coverage = Coverage(data_file=str(folder / f"part.{name}"), branch=True, include=MEASURED)
    with coverage.collect():
        yield
    coverage.save()


def report_of(folder: Path) -> Branches:
    """All parts of a folder together."""
    coverage = Coverage(data_file=str(folder / "all"), branch=True, include=MEASURED)
    coverage.combine([str(path) for path in sorted(folder.glob("part.*"))])
    coverage.json_report(outfile=str(folder / "report.json"))
    found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    files = [
        (
            name.partition("controller/")[2],
            about["summary"]["covered_branches"],
            about["summary"]["num_branches"],
            tuple(sorted({line for line, _ in about["missing_branches"]})),
        )
        for name, about in found["files"].items()
    ]
    totals = found["totals"]
    return Branches(
        taken=totals["covered_branches"],
        total=totals["num_branches"],
        files=tuple(sorted(files, key=lambda file: len(file[3]))),
    )
