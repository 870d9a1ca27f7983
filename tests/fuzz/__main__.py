"""`make fuzz`: many inputs at every target, each in a process of its own; one line of report each.

    python -m tests.fuzz [--inputs N] [--target NAME]... [--keep] [--plain] [--seed N]

With atheris (the extra `fuzz`) what an input reaches guides the next ones; else, or with --plain,
known inputs are changed by chance.  --keep replaces what the repository keeps by the least set of
inputs that goes every way the run found.  Ends with 1 when a fault was found.
"""

import argparse
import importlib.util
import json
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.plain import Plain
from tests.fuzz.tally import HEAD, Tally
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

INPUTS = 100_000
_PROGRESS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_FAULT_LINES = 40


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=INPUTS, help=f"at each target ({INPUTS:,})")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this one; repeat")
    parser.add_argument("--keep", action="store_true", help="keep what was found")
    parser.add_argument("--plain", action="store_true", help="do not use atheris")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of --plain")
    args = parser.parse_args()
    guided = not args.plain and importlib.util.find_spec("atheris") is not None
    print(f"guide: {'atheris' if guided else f'none, seed {args.seed}'}\n{HEAD}", flush=True)
    faults = 0
    for name in args.target or TARGETS:
        target = TARGETS[name]
        with tempfile.TemporaryDirectory(prefix="weightctl-fuzzing-") as scratch:
            run = _guided if guided else _plain
            tally = run(target, Path(scratch), args)
        print(tally.line(), flush=True)
        faults += bool(tally.fault)
    return 1 if faults else 0


def _plain(target: Target, scratch: Path, args: argparse.Namespace) -> Tally:
    tally, plain = Tally(target=target.name), Plain(target, args.seed)
    taken: list[bytes] = []
    raw = b""
    try:
        for raw in corpus.known(target):
            tally.try_one(target, raw)
        for raw in plain.inputs():
            if tally.inputs >= args.inputs:
                break
            if tally.try_one(target, raw):
                plain.accepted(raw)
                taken.append(raw)
    except Exception as fault:  # noqa: BLE001 - whatever is raised is the finding
        tally.fault = f"{type(fault).__name__}: {str(fault)[:200]} for {raw!r:.500}"
    tally.end()
    if args.keep and not tally.fault:
        tally.inputs_kept = corpus.keep(target, [*corpus.kept(target), *taken])
    return tally


def _guided(target: Target, scratch: Path, args: argparse.Namespace) -> Tally:
    folder = scratch / "inputs"
    folder.mkdir()
    for raw in corpus.known(target):
        (folder / sha256(raw).hexdigest()).write_bytes(raw)
    asked = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(folder), str(args.inputs)]
    with (scratch / "log").open("wb") as log:
        subprocess.run(asked, stdout=log, stderr=subprocess.STDOUT, check=False)
    said = (scratch / "log").read_text(encoding="utf-8", errors="replace")
    tally = Tally(target=target.name)
    saved = scratch / "tally.json"
    if saved.exists():
        for field, value in json.loads(saved.read_text(encoding="ascii")).items():
            setattr(tally, field, value)
    else:
        tally.fault = "ended early"
    if progress := _PROGRESS.findall(said):
        tally.coverage, tally.features, tally.inputs_kept = map(int, progress[-1])
    inputs = sorted(scratch.glob("fault-*"))
    if inputs or tally.fault:
        _tell(said, inputs)
        tally.fault = tally.fault or inputs[0].name
    elif args.keep:
        found = [path.read_bytes() for path in folder.iterdir()]
        tally.inputs_kept = corpus.keep(target, [*corpus.kept(target), *found])
    return tally


def _tell(said: str, inputs: list[Path]) -> None:
    print("\n".join(said.splitlines()[-_FAULT_LINES:]))
    for path in inputs:
        saved = Path(tempfile.gettempdir()) / path.name
        shutil.copy(path, saved)
        print(f"input: {saved}: {path.read_bytes()!r:.2000}")


if __name__ == "__main__":
    sys.exit(main())
