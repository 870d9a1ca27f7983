"""Named SQL from the `.sql` files of this package.  Layer: store.

A statement starts after a line `-- name: NAME` and ends before the next such line or the end of the
file.  Comments are dropped.  Every statement of the store lives in these files and nowhere else.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def load(topic: str) -> dict[str, str]:
    """All statements of `sql/<topic>.sql` by name."""
    text = (Path(__file__).parent / "sql" / f"{topic}.sql").read_text(encoding="ascii")
    parts = _NAME.split(text)
    return {
        name: _COMMENT.sub("", statement).strip()
        for name, statement in zip(parts[1::2], parts[2::2], strict=True)
    }
