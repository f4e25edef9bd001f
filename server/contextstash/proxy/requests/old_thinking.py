"""The model's thinking of earlier turns, which leaves a request together with a batch of tool outputs.

Some models get it again with each request, where it is billed as input, though the turn that it was for has ended. The
API accepts requests without it, except within a tool loop. Source:
https://platform.claude.com/docs/en/build-with-claude/extended-thinking#preserving-thinking-blocks
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contextstash.context.view.thinking_blocks import bills_old_thinking
from contextstash.formats.breakpoints import content_of
from contextstash.formats.request.text import RequestText, TextMessage, is_thinking
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.requests.pinned_edits import stripped, thinking_size, thinks


@dataclass(frozen=True, slots=True)
class OldThought:
    """The thinking of message `place`, with its tokens; `key` is its name among what may be pruned."""

    key: str
    place: int
    tokens: int


def old_thoughts(conversation: Conversation, request: RequestText) -> list[OldThought]:
    """The recorded thinking in front of the user's last message, as far as it is shown; none if the API does not bill
    it, or clears it itself."""
    if request.format != "anthropic" or not bills_old_thinking(conversation.state.model) or _is_cleared(request):
        return []
    recorded = min(conversation.same_messages(request), len(conversation.positions))
    end = min(turn_start(request), recorded)
    left_out = set(stripped(conversation, request, conversation.edits))
    rate = conversation.tokens_per_byte
    return [
        OldThought(_key(place), place, round(thinking_size(message) * rate))
        for place in request.places(thinks)
        if place < end and place not in left_out and _says_more(message := request.messages[place])
    ]


def turn_start(request: RequestText) -> int:
    """The message with which the user's turn begins that the model works on: its last one without a tool's result."""
    asked = request.places(_is_asked)
    return asked[-1] if asked else 0


def _is_asked(message: TextMessage) -> bool:
    return message.native.get("role") == "user" and not message.results


def _says_more(message: TextMessage) -> bool:
    """Whether something is left of the message without its thinking: it may not be empty."""
    return not all(is_thinking(block) for block in content_of(message.native))


def _is_cleared(request: RequestText) -> bool:
    """Whether the request has the API clear thinking: it keeps all of it only if the request says so."""
    management = request.value("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    return any(
        isinstance(edit, dict) and str(edit.get("type")).startswith("clear_thinking") and edit.get("keep") != "all"
        for edit in (edits if isinstance(edits, list) else ())
    )


def _key(place: int) -> str:
    return f"thinking of message {place}"


def span_of(keys: Iterable[str], conversation: Conversation, request: RequestText) -> tuple[int, int] | None:
    """The first and the last position in the session of the thinking that a plan takes; None if it takes none."""
    chosen = set(keys)
    places = [thought.place for thought in old_thoughts(conversation, request) if thought.key in chosen]
    return (conversation.positions[places[0]], conversation.positions[places[-1]]) if places else None
