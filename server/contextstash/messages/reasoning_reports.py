"""A provider's reports of reasoning that it did not use, because something before it had changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_REASON = 60
"""Characters of a reason that are kept: those that the providers document have at most 30."""

MAX_NAME = 200
"""Characters of an id, or of all that an entry says in place of one."""


@dataclass(frozen=True, slots=True)
class DroppedReasoning:
    """How many pieces of reasoning were dropped, and why, in the provider's words."""

    count: int
    reasons: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The report in words for a person."""
        pieces = "a piece" if self.count == 1 else f"{self.count} pieces"
        why = f" ({', '.join(self.reasons)})" if self.reasons else ""
        return f"The provider dropped {pieces} of reasoning{why}: something before it had changed since it was written."


@dataclass(frozen=True, slots=True)
class DroppedPiece:
    """One piece of reasoning that was dropped: what names it, and the provider's reason, empty if it gives none."""

    name: str
    reason: str


def dropped_reasoning(response: Mapping[str, Any]) -> DroppedReasoning | None:
    """The field `input_transformations` of a response, or of the event with which its stream begins or ends; None if
    nothing was dropped. Mismatches that the provider allowed do not count."""
    return dropped_together(dropped_pieces(response))


def dropped_together(pieces: Sequence[DroppedPiece]) -> DroppedReasoning | None:
    """These pieces in one report; None if there are none."""
    reasons = {piece.reason for piece in pieces if piece.reason}
    return DroppedReasoning(len(pieces), tuple(sorted(reasons))) if pieces else None


def dropped_pieces(response: Mapping[str, Any]) -> tuple[DroppedPiece, ...]:
    """The pieces that it reports as dropped."""
    for holder in (response, response.get("message"), response.get("response")):
        listed = holder.get("input_transformations") if isinstance(holder, Mapping) else None
        if isinstance(listed, list):
            return tuple(_piece(each) for each in listed if isinstance(each, Mapping) and _is_drop(each))
    return ()


def _piece(entry: Mapping[str, Any]) -> DroppedPiece:
    reason = entry.get("reason")
    name = str(entry.get("id") or json.dumps(dict(entry), sort_keys=True, default=str))[:MAX_NAME]
    return DroppedPiece(name, reason[:MAX_REASON] if isinstance(reason, str) else "")


def _is_drop(transformation: Mapping[str, Any]) -> bool:
    """OpenAI's entries are all of reasoning that was dropped; Anthropic's are of both kinds."""
    return not str(transformation.get("type", "")).endswith("_allowed")
