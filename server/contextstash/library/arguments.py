"""The types of a program's arguments: a wrong one is named at once, not by a failure somewhere inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from contextstash_storage.errors import BadInputError
from contextstash_storage.json_values import NotJsonError, check_json

MAX_NUMBER = 2**53
"""The largest whole number that all JSON parsers keep (IEEE 754)."""


def check_texts(**given: object) -> None:
    """Raises BadInputError if an argument is neither None nor a text that can be stored as a name."""
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise BadInputError(f"{name} is a text, not a {type(value).__name__}.")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise BadInputError(f"{name} holds half of a surrogate pair: pass whole characters.")


def check_numbers(**given: object) -> None:
    """Raises BadInputError if an argument is neither None nor a whole number of usual size."""
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInputError(f"{name} is a whole number, not a {type(value).__name__}.")
        if abs(value) > MAX_NUMBER:
            raise BadInputError(f"{name} is too large: at most {MAX_NUMBER:,}.")


def check_mapping(name: str, value: object) -> None:
    """Raises BadInputError if an argument is neither None nor a mapping of values that JSON has."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise BadInputError(f"{name} is a dictionary, not a {type(value).__name__}.")
    try:
        check_json(dict(value))
    except NotJsonError as error:
        raise BadInputError(f"{name} {error}") from error


def check_list(name: str, of: str, value: Any) -> None:
    """Raises BadInputError if an argument is not several of something, but a single one."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise BadInputError(f"{name} is the list of {of}, not a {type(value).__name__}.")
