"""The arguments of a program's calls: what cannot be meant gets an error that says what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from contextstash.base.json_values import NotJsonError, check_json
from contextstash.library.replies import as_natives
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


def natives_of(messages: Any) -> list[Native]:
    """A program's own list of all messages, not empty, in the form in which they are recorded. Raises BadInputError if
    one is not a message."""
    expected = "all messages of the conversation, such as [{'role': 'user', 'content': 'Hello'}]"
    check_list("messages", expected, messages)
    natives = as_natives(list(messages))
    if not natives:
        raise BadInputError("messages is empty: pass the whole conversation, at least the user's first message.")
    return natives
