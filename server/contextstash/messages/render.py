"""Renders the natives of a view as a message list that the provider accepts."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.messages.base import Format
from contextstash.messages.breakpoints import MAX_BREAKPOINTS
from contextstash_storage.records import Native

DEFAULT_BREAKPOINTS_ELSEWHERE = 2
"""Breakpoints reserved for the rest of the request if it is unknown: one each for tools and system prompt, as agents
set them."""


def render(
    fmt: Format,
    natives: Sequence[Native],
    *,
    changed: int | None = None,
    marks_elsewhere: int = DEFAULT_BREAKPOINTS_ELSEWHERE,
) -> list[Native]:
    """The messages to send: repaired and assembled, so that they break none of the provider's rules.

    Results without their call become text of the user, calls without a result get one that says that they were
    interrupted, and thinking on its own and fields that only replies have are left out. A valid list is returned
    unchanged, including key order. Deterministic and idempotent. The result shares values with `natives` but never
    changes them.

    Cache breakpoints are left out if the request would have too many together with the `marks_elsewhere` outside the
    list. `changed` is the index of the first native that differs from the recorded one.
    """
    most = max(0, MAX_BREAKPOINTS - marks_elsewhere)
    return fmt.assemble(fmt.limit_breakpoints(natives, most, changed))
