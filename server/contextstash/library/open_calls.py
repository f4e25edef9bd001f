"""The tool calls of the last reply. A list that holds their results without them is not the whole conversation: the
program did not append the reply, or passes only what is new. Providers refuse such a list, and we cannot repair it."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.formats.base import Format, Reading
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native


def calls_of(fmt: Format, natives: Sequence[Native]) -> frozenset[str]:
    """The ids of the tool calls in these messages."""
    readings = filter(None, (_reading(fmt, native) for native in natives))
    return frozenset(
        block.call_id for read in readings for block in read.blocks if block.type == "tool_call" and block.call_id
    )


def check_calls_are_listed(fmt: Format, natives: Sequence[Native], calls: frozenset[str]) -> None:
    """Raises BadInputError if the list holds the result of one of these calls, but not the call before it. Reads only
    the end of a list that is right."""
    missing: set[str] = set()
    for native in reversed(natives):
        read = _reading(fmt, native)
        for block in read.blocks if read else ():
            if block.type == "tool_result" and block.call_id in calls:
                missing.add(block.call_id)
            elif block.type == "tool_call":
                missing.discard(block.call_id or "")
        if read and read.role == "assistant" and not missing:
            return
    if missing:
        raise BadInputError(
            f"messages holds the result of the call {min(missing)}, but not the reply with this call. Pass the whole"
            " conversation each time, and append each reply to it: messages += await session.reply(reply)."
        )


def _reading(fmt: Format, native: Native) -> Reading | None:
    try:
        return fmt.read(native)
    except BadMessageError:  # the recording reports it
        return None
