"""From a view's natives to a message list that its provider accepts."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.formats.base import Format
from contextstash.formats.breakpoints import MAX_BREAKPOINTS
from contextstash_storage.records import Native

MARKS_ELSEWHERE = 2
"""How many cache breakpoints are left to the rest of a request if that is not known: tools and system prompt."""


def render(
    fmt: Format, natives: Sequence[Native], *, changed: int | None = None, marks_elsewhere: int = MARKS_ELSEWHERE
) -> list[Native]:
    """The messages to send: repaired and put together, valid by `context.pairing.rules.violations`.

    Results without their call are shown as the user's text, calls without a result get one that says that it
    was interrupted, thinking that would stand alone is left out, and so is what only replies have. On a list
    that is valid already this is the identity, key order included; it is deterministic, and doing it twice
    changes nothing more. The result shares values with `natives` but never changes them.

    Cache breakpoints are left out if the request would have too many of them with the `marks_elsewhere` that stand
    beside the list. `changed` is the place of the first native that is not shown as it was recorded.
    """
    most = max(0, MAX_BREAKPOINTS - marks_elsewhere)
    return fmt.assemble(fmt.limit_breakpoints(natives, most, changed))
