"""The first child of a check: can the tier be loaded at all.  Layer: conformance.

Runs as `python -m weightctl.adapters.conformance.loading FOLDER`, before `session`.  One plain
error says what each of the cases would say once more.  The factory is called and nothing is
entered, so that no medium is touched.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import anyio
import pytest

from weightctl.adapters.conformance.session import REQUEST, imports_from
from weightctl.adapters.conformance.suite.capabilities import described
from weightctl.adapters.conformance.suite.harness import harness_over
from weightctl.controller.errors import ConfigError, WeightctlError

LOADED = "loaded.json"


def main(folder: Path) -> int:
    """Write to LOADED the profile, or the problem: why it cannot be loaded, and what to do."""
    request: dict[str, Any] = json.loads((folder / REQUEST).read_text())
    imports_from(request["path"])
    try:
        found: dict[str, object] = {"profile": anyio.run(_profile, request, folder)}
    except pytest.skip.Exception:
        found = {"profile": {}}  # the harness makes no tier this way: the suite names the cases
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - foreign code, which may even try to exit
        found = {"problem": _problem(error)}
    (folder / LOADED).write_text(json.dumps(found))
    return 0


async def _profile(request: dict[str, Any], folder: Path) -> dict[str, object]:
    names = [str(request[name]) for name in ("factory", "harness") if request[name]]
    for name in names:
        module, _, attribute = name.partition(":")
        if not (module and attribute):
            raise ConfigError(name, "it is not MODULE:NAME", "name it as an entry point does")
    media = folder / "loading"
    media.mkdir()
    made = harness_over(request["harness"], request["factory"], request["options"])(media).tier()
    profile = made.profile
    with contextlib.suppress(Exception):
        return described(profile)
    return {}  # the suite says what is wrong with it


def _problem(error: BaseException) -> list[str]:
    """Why, and what to do."""
    if isinstance(error, WeightctlError):
        why = ": ".join(part for part in (error.what, error.why) if part)
        return [why.replace("\n", " "), error.todo or "correct it and check again"]
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f" ({last.filename}:{last.lineno})" if last.filename != __file__ else ""
    why = f"{type(error).__name__}: {error}{place}".replace("\n", " ")
    if isinstance(error, ImportError):
        return [why, "install its package, or put its folder into PYTHONPATH"]
    return [why, "name a factory as an entry point does, MODULE:FACTORY, and give what it needs"]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
