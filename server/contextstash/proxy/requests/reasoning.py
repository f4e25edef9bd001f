"""Reasoning that the provider binds to what stands before it, so that the proxy must not change that any more.

What was sent stays as it was sent as long as such reasoning follows it; edits wait until the client compacts. Then
nothing that was bound is sent any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.context.window.reasoning import ReasoningBinding, reasoning_binding
from contextstash.formats.request.text import RequestText, TextMessage
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.requests.pinned_edits import pinned_edits, pinned_summaries, thinks

FORMATS = {"anthropic": "anthropic", "openai": "openai-responses"}
"""The format in which each provider takes its models' reasoning back. Chat Completions takes none."""


def binding_of(conversation: Conversation, request: RequestText) -> ReasoningBinding | None:
    """How the request's model binds the reasoning that the request holds; None if it does not. A request that lets the
    API drop what does not match is bound too: its reasoning would be lost."""
    binding = reasoning_binding(conversation.state.model)
    return binding if binding is not None and FORMATS[binding.provider] == request.format else None


def may_show(conversation: Conversation, request: RequestText) -> bool:
    """Whether the edits in force may follow those that the former request showed: not if bound reasoning follows the
    first of them that is new."""
    if conversation.edits is conversation.shown or binding_of(conversation, request) is None:
        return True
    return not bound_reasoning(conversation, request, first_changed(conversation, request))


def first_changed(conversation: Conversation, request: RequestText) -> int:
    """The first message that the edits in force show in another way than those of the former request did."""
    before, now = pinned_edits(conversation, request, conversation.shown), pinned_edits(conversation, request)
    changed = [place for place in before.keys() | now.keys() if before.get(place) != now.get(place)]
    shown = pinned_summaries(conversation, request, conversation.shown)
    changed += [summary.first for summary in pinned_summaries(conversation, request) if summary not in shown]
    return min(changed, default=len(request.messages))


def bound_reasoning(conversation: Conversation, request: RequestText, first: int) -> list[int]:
    """The messages from this one on whose reasoning is shown."""
    shown = pinned_edits(conversation, request)
    return [
        place
        for place in request.places(is_reasoning)
        if place >= first and not (place in shown and shown[place].thinking_left_out)
    ]


def is_reasoning(message: TextMessage) -> bool:
    """Whether it holds reasoning: blocks of thinking, or an item of the Responses API."""
    return message.native.get("type") == "reasoning" or thinks(message)


@dataclass(frozen=True, slots=True)
class ThinkingChoice:
    """Whether an edit is possible at all, and from which message of the request on thinking must be left out."""

    possible: bool
    strip_from: int | None = None


def thinking_choice(conversation: Conversation, request: RequestText, first: int, *, needed: bool) -> ThinkingChoice:
    """What an edit of message `first` does to reasoning behind it. If that is bound, the edit waits. If it is `needed`,
    because the provider refuses the request as too long, thinking of Claude is left out at the end of a tool loop;
    within one the model needs it, and the client compacts."""
    binding = binding_of(conversation, request)
    if binding is None:
        return ThinkingChoice(True)
    later = bound_reasoning(conversation, request, min(first, first_changed(conversation, request)))
    if not later:
        return ThinkingChoice(True)
    in_loop = bool(request.latest.results)
    return ThinkingChoice(True, later[0]) if needed and binding.refuses and not in_loop else ThinkingChoice(False)
