"""A list that ends with tool results, without the reply that called the tools, is not the whole conversation: the
program did not append the reply, or passes only what is new. Providers refuse such a list; it cannot be repaired."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.formats.base import Format, Reading
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native


def check_reply_is_listed(fmt: Format, natives: Sequence[Native]) -> None:
    """Raises BadInputError if a result behind the last reply has no call in front of it. Older results are not looked
    at: clients shorten their lists. Of a list that is right, only the end is read."""
    missing: set[str] = set()
    is_end = True
    for native in reversed(natives):
        read = _reading(fmt, native)
        is_end = is_end and (read is None or read.role != "assistant")
        for block in read.blocks if read else ():
            if block.type == "tool_call":
                missing.discard(block.call_id or "")
            elif block.type == "tool_result" and is_end and block.call_id:
                missing.add(block.call_id)
        if not missing and not is_end:
            return
    if missing:
        raise BadInputError(
            f"messages holds the result of the call {min(missing)}, but not the reply with this call. Pass the whole"
            " conversation each time, and append each reply of the model to it (in a Python program:"
            " messages += await session.reply(reply))."
        )


def _reading(fmt: Format, native: Native) -> Reading | None:
    try:
        return fmt.read(native)
    except BadMessageError:  # the recording reports it
        return None
