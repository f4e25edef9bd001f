"""From a view's natives to a message list that its provider accepts."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.formats.base import Format
from contextstash_storage.records import Native


def render(fmt: Format, natives: Sequence[Native]) -> list[Native]:
    """The messages to send: repaired and put together, valid by `context.pairing.rules.violations`.

    Results without their call are shown as the user's text, calls without a result get one that says that it
    was interrupted, thinking that would stand alone is left out, and so is what only replies have. On a list
    that is valid already this is the identity, key order included; it is deterministic, and doing it twice
    changes nothing more. The result shares values with `natives` but never changes them.
    """
    return fmt.assemble(natives)
