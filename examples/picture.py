"""Draw the README's picture from what the demo printed: what each tier holds after each step.

    weightctl demo -o json | python examples/picture.py > examples/demo.svg

Columns are the demo's steps, rows the tiers; a bar's height is the bytes there, in shares of the
most that any tier held.  A cross marks a `kill -9` of the loop in the middle of that step, with the
stage that it hit.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

LEFT, TOP, COLUMN, ROW, GAP = 110, 92, 122, 52, 10
HOT, COLD, EMPTY = "#d9622b", "#2f6fab", "#eef1f4"
INK, FAINT, CROSS = "#1f2933", "#6b7785", "#b3261e"
MEMORY = "memory"
MIB = 1024 * 1024


def drawn(document: dict[str, Any]) -> str:
    """The SVG of one `Demo` document."""
    steps = [step for step in document["results"] if step["usedBytes"]]
    tiers = list(steps[0]["usedBytes"])
    most = max(used for step in steps for used in step["usedBytes"].values()) or 1
    width = LEFT + COLUMN * len(steps) + GAP
    height = TOP + ROW * len(tiers) + 46
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">'
    )
    parts = [
        opening,
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        text(GAP + 4, 26, title(document), size=14, weight="600"),
    ]
    for row, tier in enumerate(tiers):
        parts.append(text(GAP + 4, TOP + ROW * row + 26, tier, weight="600"))
    for column, step in enumerate(steps):
        parts.extend(stepped(step, LEFT + COLUMN * column, tiers, most))
    return "\n".join([*parts, "</svg>", ""])


def title(document: dict[str, Any]) -> str:
    """What is shown, in one line."""
    size = f"{document['tensors']} tensors, {document['sizeBytes'] / MIB:.1f} MiB"
    return f"What each tier holds after each step of weightctl demo ({size})"


def stepped(step: dict[str, Any], left: int, tiers: list[str], most: int) -> Iterator[str]:
    """One column: name, kill, a bar for each tier, residency and time."""
    middle = left + (COLUMN - GAP) // 2
    yield text(middle, 52, step["name"], anchor="middle", weight="600")
    if step["killed"]:
        yield text(middle, 68, "\u2715 kill -9", anchor="middle", color=CROSS, size=11)
        yield text(middle, 82, hit(step["killed"][0]), anchor="middle", color=CROSS, size=11)
    for row, tier in enumerate(tiers):
        top, full = TOP + ROW * row, ROW - GAP
        used = step["usedBytes"][tier]
        high = round(full * used / most)
        yield box(left, top, full, EMPTY)
        if used:
            yield box(left, top + full - high, high, HOT if tier == MEMORY else COLD)
            size = f"{used / MIB:.1f} MiB"
            yield text(middle, top + full - 14, size, anchor="middle", color="#ffffff")
    bottom = TOP + ROW * len(tiers)
    yield text(middle, bottom + 14, step["residency"], anchor="middle", weight="600")
    seconds = f"{step['seconds']:.1f} s"
    yield text(middle, bottom + 32, seconds, anchor="middle", color=FAINT, size=12)


def hit(kill: dict[str, Any]) -> str:
    """The stage in which the loop was killed, and how far it was."""
    if not kill["total"]:
        return str(kill["stage"])
    if kill["unit"] == "bytes":
        return f"{kill['stage']} {100 * kill['done'] // kill['total']} %"
    return f"{kill['stage']} {kill['done']} of {kill['total']}"


def box(left: int, top: int, height: int, color: str) -> str:
    """A filled rectangle, one column wide."""
    width = COLUMN - GAP
    return f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="3" fill="{color}"/>'


def text(left: int, base: int, words: str, **style: Any) -> str:  # noqa: ANN401 - attributes
    """A line of text."""
    return (
        f'<text x="{left}" y="{base}" fill="{style.get("color", INK)}"'
        f' text-anchor="{style.get("anchor", "start")}" font-size="{style.get("size", 13)}"'
        f' font-weight="{style.get("weight", "400")}">{escape(words)}</text>'
    )


if __name__ == "__main__":
    sys.stdout.write(drawn(json.load(sys.stdin)))
