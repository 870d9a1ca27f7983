"""One table for all benchmarks: a Markdown row beside its floor or peer from the same run.

A benchmark is a module `bench_*.py` here, run as `python -m tests.bench.bench_NAME`; it calls `row`
once for each number.  `python -m tests.bench [NAME ...]` runs them one after the other, each in a
process of its own, and prints one table.
"""

HEADER = "| what | ours | floor or peer | ratio | aim |\n|---|---|---|---|---|"


def row(name: str, ours: str, peer: str = "", ratio: str = "", aim: str = "") -> None:
    """Print one row; numbers come as text with their unit, for example `1.2 GiB/s`."""
    cells = (cell.replace("|", "/") for cell in (name, ours, peer, ratio, aim))
    print("| " + " | ".join(cells) + " |", flush=True)
