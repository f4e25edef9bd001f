"""Reasoning that the provider binds to what stands before it, so that the proxy must not change that any more.

What was sent stays as it was sent as long as such reasoning follows it; edits wait until the client compacts. Then
nothing that was bound is sent any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.context.window.reasoning_binding import ReasoningBinding, reasoning_binding
from contextstash.formats.request.text import TextMessage
from contextstash.proxy.requests.drafts import Draft
from contextstash.proxy.requests.shown_edits import Shown, ShownEdits, shown_edits

FORMATS = {"anthropic": "anthropic", "openai": "openai-responses"}
"""The format in which each provider takes its models' reasoning back. Chat Completions takes none."""


def binding_of(draft: Draft) -> ReasoningBinding | None:
    """How the request's model binds the reasoning that the request holds; None if it does not. A request that lets the
    API drop what does not match is bound too: its reasoning would be lost."""
    binding = reasoning_binding(draft.conversation.state.model)
    return binding if binding is not None and FORMATS[binding.provider] == draft.request.format else None


def may_show(draft: Draft, edits: ShownEdits) -> bool:
    """Whether the edits in force may follow those that the former request showed: not if bound reasoning follows the
    first of them that is new."""
    if edits.first == len(draft.messages) or binding_of(draft) is None:
        return True
    return not bound_reasoning(draft, edits.now, edits.first)


def bound_reasoning(draft: Draft, shown: Shown, first: int) -> list[int]:
    """The messages from this one on whose reasoning is shown."""
    return [
        place
        for place in draft.request.places(is_reasoning)
        if place >= first and not (place in shown and shown[place].edit.thinking_left_out)
    ]


def is_reasoning(message: TextMessage) -> bool:
    """Whether it holds reasoning: blocks of thinking, or an item of the Responses API."""
    return message.native.get("type") == "reasoning" or message.thinks


@dataclass(frozen=True, slots=True)
class ThinkingChoice:
    """Whether an edit is possible at all, and from which message of the request on thinking must be left out."""

    possible: bool
    strip_from: int | None = None


def thinking_choice(draft: Draft, first: int, *, needed: bool) -> ThinkingChoice:
    """What an edit of message `first` does to reasoning behind it. If that is bound, the edit waits. If it is `needed`,
    because the provider refuses the request as too long, thinking of Claude is left out at the end of a tool loop;
    within one the model needs it, and the client compacts."""
    binding = binding_of(draft)
    if binding is None:
        return ThinkingChoice(True)
    edits = shown_edits(draft)
    later = bound_reasoning(draft, edits.now, min(first, edits.first))
    if not later:
        return ThinkingChoice(True)
    in_loop = bool(draft.request.latest.results)
    return ThinkingChoice(True, later[0]) if needed and binding.refuses and not in_loop else ThinkingChoice(False)
