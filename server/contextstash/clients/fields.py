"""Fields of a client's JSON records: values that may be missing or of any type, and what is made of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextstash_storage.records import Usage

Json = dict[str, Any]


def parse_document(data: bytes) -> Any:
    """The JSON value of these bytes; None if they are not valid JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def ids_of(body: Json, kind: str, name: str) -> list[str]:
    """The ids in the field `name` of a message's blocks of this kind."""
    found = [block.get(name) for block in objects(body.get("content")) if block.get("type") == kind]
    return [each for each in found if isinstance(each, str)]


def objects(value: object) -> list[Json]:
    """The objects in a list; none if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def part(record: object, *names: str) -> Json:
    """The object found under these names, each inside the previous one; empty if it does not exist."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record if isinstance(record, dict) else {}


def text_of(value: object) -> str | None:
    """The value if it is a string that is not blank, else None."""
    return value if isinstance(value, str) and value.strip() else None


def title_of(value: object) -> str | None:
    """The beginning of a title, None if there is none."""
    return (text_of(value) or "").strip()[:200] or None


def moment(value: object) -> datetime | None:
    """The time of an ISO 8601 string with a zone, or of a number of milliseconds since 1970; None if it is neither."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e14:
            return datetime.fromtimestamp(value / 1000, UTC)
    except ValueError:
        pass
    return None


def count_of(record: Json, name: str) -> int:
    """The number in a field; 0 if it holds no positive one."""
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def usage_of(prompt: int, completion: int, cached: int = 0, written: int = 0) -> Usage | None:
    """The usage of a request; None if no prompt is reported. `prompt` includes cached tokens."""
    from contextstash_storage.records import Usage  # loads pydantic, which most hooks need not

    if not prompt:
        return None
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, cache_write_tokens=written)


def reported_usage(given: object) -> Usage | None:
    """The usage of a request as its provider reported it, None if it is not one."""
    from contextstash.messages.base import read_usage

    return read_usage(given) if isinstance(given, dict) else None
