"""A program's own message list in plain JSON. A loop passes the whole list at each turn: what has not changed since the
last request is not examined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contextstash.json.value_bytes import value_bytes
from contextstash.library.arguments import check_list
from contextstash.library.replies import as_native
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native


class MessageList:
    """The list of one session, as it was passed last."""

    def __init__(self) -> None:
        self._plain: list[bytes | None] = []

    def natives(self, messages: Sequence[object]) -> list[Native]:
        """The messages in the form in which they are recorded. Raises BadInputError if one is not a message."""
        if isinstance(messages, str | bytes | Mapping):
            raise BadInputError(
                "messages is the list of all messages of the conversation, such as"
                f" [{{'role': 'user', 'content': 'Hello'}}], not a {type(messages).__name__}."
            )
        check_list("messages", "all messages of the conversation", messages)
        natives: list[Native] = []
        seen: list[bytes | None] = []
        for place, message in enumerate(messages):
            written = value_bytes(message)
            # Only that it needs no change is remembered, not the message: the program may change that in place.
            if written is not None and place < len(self._plain) and written == self._plain[place]:
                native: Native = message  # type: ignore[assignment]
            else:
                native = as_native(message, place)
            natives.append(native)
            seen.append(written if native is message else None)
        self._plain = seen
        return natives
