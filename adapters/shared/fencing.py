"""Which terms a root has served, so that an older holder of the same name is refused.

Layer: adapters, shared; blocking.  Owns `weightctl-fence.json`: highest term by holder.
Invariant: a term is on disk before anything is done for it, and a stored term never goes back, for
all processes that share the root (as far as the medium honours flock; without it the file is still
replaced as a whole).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from weightctl.adapters.shared.files import locked, read_small, write_small
from weightctl.controller.core.identity import is_u64
from weightctl.controller.errors import FencedError, TerminalError

if TYPE_CHECKING:
    from weightctl.controller.ports import Fence

FENCE_FILE = "weightctl-fence.json"
HOLDERS_MAX = 1024


def admit(root_fd: int, fence: Fence, *, durable: bool, writer: str = "new") -> None:
    """Let `fence` act under the root, remembering its term; `writer` as in `write_small`.

    Raises FencedError when a higher term of the same holder was served, OSError for the medium.
    """
    terms = _load(root_fd)
    refuse_older(fence, terms.get(fence.holder, 0))
    if terms.get(fence.holder) == fence.term:
        return
    with locked(root_fd):
        terms = _load(root_fd)
        refuse_older(fence, terms.get(fence.holder, 0))
        terms.pop(fence.holder, None)
        terms[fence.holder] = fence.term  # last: the longest unused holders are forgotten first
        kept = dict(list(terms.items())[-HOLDERS_MAX:])
        raw = json.dumps(kept).encode()
        write_small(root_fd, FENCE_FILE, raw, durable=durable, writer=writer)


def is_anothers(fence: Fence, served: int) -> bool:
    """Whether a term of the same holder is of somebody to whom this one has to yield.

    A higher one is a newer process's, or a copy's of the state directory; a lower one is a copy's
    where the directory does not know it.
    """
    if served >= fence.term or not fence.past:
        return served > fence.term
    return served > fence.past[0] and served not in fence.past


def refuse_older(fence: Fence, served: int) -> None:
    """Raise FencedError where a term of the same holder was served that is another's."""
    if is_anothers(fence, served):
        raise FencedError(
            f"term {fence.term} of holder {fence.holder}",
            f"term {served} has already been served here",
            "a newer process has taken over and this one must stop acting; or the state directory"
            " is an older copy that was put back: where nothing else runs, start once with"
            f" --set store.term_above={served}",
        )


def _load(root_fd: int) -> dict[str, int]:
    raw = read_small(root_fd, FENCE_FILE)
    if raw is None:
        return {}
    try:
        terms = json.loads(raw)
    except (ValueError, RecursionError):
        terms = None
    if not isinstance(terms, dict) or not all(map(is_u64, terms.values())):
        raise TerminalError(
            f"{FENCE_FILE} of the tier cannot be read",
            "it is damaged",
            "stop every controller that uses this root, then remove the file",
        )
    return terms
