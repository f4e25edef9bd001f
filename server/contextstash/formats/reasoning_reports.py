"""What a provider reports of reasoning that it did not use, since something before it had changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_REASON = 60
"""Characters of a reason that are kept: those that the providers document have at most 30."""


@dataclass(frozen=True, slots=True)
class DroppedReasoning:
    """How many pieces of reasoning were dropped, and why, in the provider's words."""

    count: int
    reasons: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What happened, for a person."""
        pieces = "a piece" if self.count == 1 else f"{self.count} pieces"
        why = f" ({', '.join(self.reasons)})" if self.reasons else ""
        return f"The provider dropped {pieces} of reasoning{why}: something before it had changed since it was written."


def dropped_reasoning(response: Mapping[str, Any]) -> DroppedReasoning | None:
    """What a response, or the event with which its stream begins or ends, says in `input_transformations`; None if
    nothing was dropped. Mismatches that the provider allowed do not count."""
    for holder in (response, response.get("message"), response.get("response")):
        listed = holder.get("input_transformations") if isinstance(holder, Mapping) else None
        if isinstance(listed, list):
            found = [each for each in listed if isinstance(each, Mapping) and _is_drop(each)]
            reasons = Counter(str(each["reason"])[:MAX_REASON] for each in found if isinstance(each.get("reason"), str))
            return DroppedReasoning(len(found), tuple(sorted(reasons))) if found else None
    return None


def _is_drop(transformation: Mapping[str, Any]) -> bool:
    """OpenAI's entries are all of reasoning that was dropped; Anthropic's are of both kinds."""
    return not str(transformation.get("type", "")).endswith("_allowed")
