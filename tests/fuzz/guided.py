"""One target under atheris, in a process of its own: `python -m tests.fuzz.guided TARGET FOLDER N`.

The product's modules are instrumented as they are imported, so nothing of it may be imported
before.  FOLDER holds the inputs to begin with and gets what was found; the tally lies beside it.
A fault ends the process, and its input stays in FOLDER's parent.
"""

import importlib
import sys
from pathlib import Path
from random import Random
from typing import Any

atheris: Any = importlib.import_module("atheris")  # an extra, without types

with atheris.instrument_imports(include=["weightctl", "tomllib"]):
    from tests.fuzz.changing import changed
    from tests.fuzz.corpus import kept
    from tests.fuzz.tally import Tally
    from tests.fuzz.targets import TARGETS

OWN_SHARE = {"json": 0.6, "lines": 0.6, "text": 0.3, "bytes": 0.3}
"""How often the structure is changed and not the bytes."""
WHOLE_SHARE = 0.4
"""How often that begins from a known input: the guide prefers small ones, most of them broken."""
TIMEOUT_S = 20
RESIDENT_MIB_MAX = 1024


def main(name: str, folder: str, inputs: str) -> None:
    """Run and save; does not return."""
    target, tally = TARGETS[name], Tally(target=name, guide="atheris")
    place = Path(folder)
    whole = [*target.seeds(), *kept(target)]

    def one(raw: bytes) -> None:
        try:
            tally.try_one(target, raw)
        except BaseException as fault:
            tally.fault = f"{type(fault).__name__}: {str(fault)[:300]}"
            tally.write(place.parent / "tally.json")
            raise
        if tally.inputs == int(inputs):
            tally.write(place.parent / "tally.json")

    def change(raw: bytes, size_max: int, seed: int) -> bytes:
        chance = Random(seed)
        if chance.random() >= OWN_SHARE[target.form]:
            return bytes(atheris.Mutate(raw, size_max))
        base = chance.choice(whole) if chance.random() < WHOLE_SHARE else bytes(raw)
        return changed(chance, base, target.form, target.words)[:size_max]

    words = place.parent / "words"
    escaped = [f'"{_escaped(word)}"\n' for word in (*target.words, b"0")]  # it may not be empty
    words.write_text("".join(escaped), encoding="ascii")
    arguments = (
        f"-atheris_runs={inputs}", f"-max_len={target.bytes_max}", f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={RESIDENT_MIB_MAX}", f"-artifact_prefix={place.parent}/fault-",
        f"-dict={words}", "-mutate_depth=2",
    )  # fmt: skip
    atheris.Setup([sys.argv[0], *arguments, folder], one, custom_mutator=change)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{one:02x}" for one in word)


if __name__ == "__main__":
    main(*sys.argv[1:])
