"""What a response reports of reasoning that the provider left out of its request, because what stands before it has
changed or because it belongs to another model or account.

Anthropic lists it in `message_start` (with the beta thinking-binding-controls-2026-08-01), OpenAI in the response, both
under `input_transformations`. Sources: https://platform.claude.com/docs/en/build-with-claude/preserved-thinking and
https://developers.openai.com/api/docs/guides/keep-prefix-unchanged
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIELD = "input_transformations"

MAX_NAMED = 1_000
"""How many entries of a response are read: more than a request has messages that think."""

MAX_CHARACTERS = 200
"""Of an id or a reason that is kept: providers' have some 40."""


@dataclass(frozen=True, slots=True)
class DroppedReasoning:
    """One piece of reasoning that the model did not see: what names it, and the provider's reason."""

    name: str
    reason: str


def dropped_reasoning(response: Mapping[str, Any]) -> tuple[DroppedReasoning, ...]:
    """The pieces that a response reports as dropped; mismatches that the provider allowed are none. OpenAI documents
    the reason and the id of an entry, and no type."""
    found = response.get(FIELD)
    entries = found[:MAX_NAMED] if isinstance(found, list) else []
    return tuple(
        DroppedReasoning(_name(entry), str(entry.get("reason") or entry.get("type"))[:MAX_CHARACTERS])
        for entry in entries
        if isinstance(entry, dict) and _is_drop(entry)
    )


def _is_drop(entry: Mapping[str, Any]) -> bool:
    kind = entry.get("type")
    return bool(entry.get("reason")) if kind is None else str(kind).endswith("dropped")


def _name(entry: Mapping[str, Any]) -> str:
    """The id of the piece; without one, all that the entry says of its place."""
    return str(entry.get("id") or json.dumps(entry, sort_keys=True, default=str))[:MAX_CHARACTERS]
