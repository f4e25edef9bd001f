"""The parts of a Gemini content: what one holds, in both spellings in use.

The REST API writes `functionCall`; Google's Python SDK, pydantic dumps and protobuf's own JSON write `function_call`.
The API accepts both, so each is kept as it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

Part = dict[str, Any]

DATA_KEYS = (
    "functionCall",
    "functionResponse",
    "text",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
"""The fields of which a part has exactly one: `oneof data` of Part, https://ai.google.dev/api/caching#Part"""

ABOUT_KEYS = frozenset(
    {
        "thought",
        "thoughtSignature",
        "videoMetadata",
        "mediaResolution",
        "mediaProcessing",
        "partMetadata",
        "audioTranscription",
        "speechMetadata",
        "documentMetadata",
        "spreadsheetMetadata",
        "audioMetadata",
    }
)
"""The fields that describe a part's data: the rest of Part in Google's Python SDK, google-genai 3.4."""


@cache
def snake(key: str) -> str:
    """The key as the Python SDK spells it."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", key)


def get(value: Mapping[str, Any], key: str) -> Any:
    """The value of a field in either spelling; None if it is missing or null. `key` is the REST spelling."""
    found = value.get(key)
    return value.get(snake(key)) if found is None else found


def spelling(value: Mapping[str, Any], key: str) -> str:
    """How the field is spelled there."""
    return key if value.get(key) is not None else snake(key)


def data_keys(part: Mapping[str, Any]) -> list[str]:
    """The known data fields that the part has; one in a valid part."""
    return [key for key in DATA_KEYS if get(part, key) is not None]


def other_keys(part: Mapping[str, Any]) -> list[str]:
    """The part's fields that are not known here, as given: data of a kind that Google added later."""
    return [key for key, value in part.items() if value is not None and key not in _KNOWN]


_KNOWN = {spelled for key in (*DATA_KEYS, *ABOUT_KEYS) for spelled in (key, snake(key))}


def is_signed(part: Mapping[str, Any]) -> bool:
    """Whether the part has a thought signature. Such a part goes back exactly as it came, an empty text included:
    https://ai.google.dev/gemini-api/docs/thought-signatures"""
    return bool(get(part, "thoughtSignature"))


def id_of(value: Mapping[str, Any]) -> str | None:
    """The id of a call or response. Optional: without ids, the API pairs them by name and order."""
    found = value.get("id")
    return found if isinstance(found, str) and found else None
