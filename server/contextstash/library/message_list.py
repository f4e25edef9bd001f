"""A program's own message list in plain JSON. A loop passes the whole list at each turn: what has not changed since the
last request is not examined again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextstash.base.json_values import NotJsonError, check_json, value_bytes
from contextstash.library.replies import as_native
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

MAX_NUMBER = 2**53
"""The largest whole number that all JSON parsers keep (IEEE 754)."""


def check(kind: type, **given: object) -> None:
    """Raises BadInputError if an argument is neither None nor of this kind: a text that can be stored as a name (str),
    a whole number of usual size (int), or a dictionary of values that JSON has (Mapping)."""
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            raise BadInputError(f"{name} is {_KINDS[kind]}, not a {type(value).__name__}.")
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise BadInputError(f"{name} is too large: at most {MAX_NUMBER:,}.")
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise BadInputError(f"{name} holds half of a surrogate pair: pass whole characters.")
        if isinstance(value, Mapping):
            try:
                check_json(dict(value))
            except NotJsonError as error:
                raise BadInputError(f"{name} {error}") from error


_KINDS: dict[type, str] = {str: "a text", int: "a whole number", Mapping: "a dictionary"}


def check_list(name: str, of: str, value: Any) -> None:
    """Raises BadInputError if an argument is not several of something, but a single one."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise BadInputError(f"{name} is the list of {of}, not a {type(value).__name__}.")


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
