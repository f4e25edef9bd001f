"""Reasoning that the provider binds to what stands before it, so that the proxy must not change that any more.

What was sent stays as it was sent as long as such reasoning follows it; edits wait until the client compacts. Then
nothing that was bound is sent any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contextstash.context.window.reasoning_binding import ReasoningBinding, reasoning_binding
from contextstash.formats.request.edits import MessageEdit
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


@dataclass(frozen=True, slots=True)
class ShownEdits:
    """How a request is shown, by message: with the edits in force, and with those of the former request. `first` is the
    first message that the two show differently; behind the last one if they are the same."""

    now: Mapping[int, MessageEdit]
    former: Mapping[int, MessageEdit]
    first: int


def shown_edits(conversation: Conversation, request: RequestText) -> ShownEdits:
    """The edits of a request, and where they differ from those of the former one."""
    now, end = pinned_edits(conversation, request), len(request.messages)
    if conversation.edits is conversation.shown:
        return ShownEdits(now, now, end)
    former = pinned_edits(conversation, request, conversation.shown)
    changed = [place for place in former.keys() | now.keys() if former.get(place) != now.get(place)]
    known = pinned_summaries(conversation, request, conversation.shown)
    changed += [summary.first for summary in pinned_summaries(conversation, request) if summary not in known]
    return ShownEdits(now, former, min(changed, default=end))


def may_show(conversation: Conversation, request: RequestText, edits: ShownEdits) -> bool:
    """Whether the edits in force may follow those that the former request showed: not if bound reasoning follows the
    first of them that is new."""
    if edits.first == len(request.messages) or binding_of(conversation, request) is None:
        return True
    return not bound_reasoning(request, edits.now, edits.first)


def bound_reasoning(request: RequestText, shown: Mapping[int, MessageEdit], first: int) -> list[int]:
    """The messages from this one on whose reasoning is shown."""
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
    edits = shown_edits(conversation, request)
    later = bound_reasoning(request, edits.now, min(first, edits.first))
    if not later:
        return ThinkingChoice(True)
    in_loop = bool(request.latest.results)
    return ThinkingChoice(True, later[0]) if needed and binding.refuses and not in_loop else ThinkingChoice(False)
