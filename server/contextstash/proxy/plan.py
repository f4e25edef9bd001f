"""What leaves a request: old tool outputs, if the cache is cold anyway or the provider refused the request as too long.

At a warm cache an edit would make the provider write everything behind it again. So then only what the user or the
model asked for is changed, by prune, compact, restore and pins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from contextstash.clients.request_identity import announces
from contextstash.messages.request.text import SERVER_STATE_KEYS, RequestText, TextMessage, has_long_breakpoint
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.edits import Draft
from contextstash.proxy.request_lines import lists_tools, tool_names
from contextstash.request.proxied import Key
from contextstash.view.outputs_in_use import MadeCall, protected_calls
from contextstash.view.pinned_outputs import outputs_of_pins

DEFAULT_KEEP_TOKENS = 8_000
"""Tokens of the newest tool results that stay: about ten outputs, as many as the preset `rolling` keeps. Replayed on
recorded sessions, 12,000 cost 2 % more (bench/proxy). Less would save more, but the model works with what it has just
read."""

STEP_SECONDS = 1.0
"""By default, how long a request waits for the database before it goes out as it is. Clients wait longer for
the first byte anyway; another process's transaction takes some 10 ms."""

RETRIEVAL_TOOL = "get_archived_output"

CACHE_SECONDS = 300
LONG_CACHE_SECONDS = 3600
"""How long a provider keeps a cache after its last use: Anthropic by the request's breakpoints, OpenAI 5 to 10 minutes
and at most an hour, so that only then it is surely gone. Sources:
https://docs.claude.com/en/docs/build-with-claude/prompt-caching, OpenAI's guide to prompt caching."""

SLACK_SECONDS = 15
"""Seconds after the end of a cache's time until it counts as cold: the provider's clock started elsewhere."""

MIN_TOKENS = 3_000
"""Tokens that a prune at a cold cache must free: less is not worth an output that may be fetched again."""

MIN_RESULT_TOKENS = 200
"""A smaller result is not pruned: its room is that of a few placeholders, and it is often the one relevant fact."""

PLACEHOLDER_TOKENS = 70
"""What a placeholder takes on average, measured on recorded sessions; the exact one is made when it is needed."""

COLD_KEEP_SHARE = 0.5
"""The share of these tokens that stays if the cache is cold: after a pause the model is done with what it had read
these outputs for, and what leaves now costs nothing. Too small a share, and outputs in use are fetched again."""

KNOWN_BLOCKS = frozenset(
    {
        "text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use",
        "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "tool_reference",
        "bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result",
        "mcp_tool_use", "mcp_tool_result", "search_result", "container_upload", "compaction",
    }
)  # fmt: skip
"""Blocks of Anthropic requests whose place in a request is known (its API reference). A request with another block goes
out unedited: an edit might break a rule that is not known here."""


@dataclass(frozen=True)
class ProxyOptions:
    """How the proxy edits. `step_seconds` is how long a request waits for the database. `configured` says that the
    client is known to have our server, `project` is the folder in which it was started, `window` the size at which it
    was told to compact."""

    keep_tokens: int = DEFAULT_KEEP_TOKENS
    prune: bool = True
    step_seconds: float = STEP_SECONDS
    configured: bool = False
    project: str | None = None
    window: int | None = None


def cache_seconds(request: RequestText) -> int:
    """How long the cache that a request asks for is kept: of two kinds of breakpoints the longer one counts."""
    if request.format != "anthropic":
        return LONG_CACHE_SECONDS
    around = [request.value("system"), request.value("tools")]
    long = bool(request.places("has_long_breakpoint")) or any(
        isinstance(blocks, list) and has_long_breakpoint(blocks) for blocks in around
    )
    return LONG_CACHE_SECONDS if long else CACHE_SECONDS


def writes_long(request: RequestText) -> bool:
    """Whether the cache keeps what the request writes for an hour, at a higher price."""
    return request.format == "anthropic" and cache_seconds(request) == LONG_CACHE_SECONDS


def cold_now(conversation: Conversation, now: float) -> bool:
    """Whether the provider's cache of this conversation has surely expired, by the time since its last use alone: a
    single request that read nothing from it says little, since requests are routed to different machines. It is not
    known to be cold if no request of it was ever seen."""
    state = conversation.state
    return state.requests > 0 and now - state.last_at > state.cache_seconds + SLACK_SECONDS


def offers_retrieval(request: RequestText, *, configured: bool = False) -> bool:
    """Whether the model can call our tool that returns an output: it is offered, or named for a tool search.
    `configured` says that the client is known to have our server: Codex does not name the tools of MCP servers to a
    model that writes programs, but lets the program search for them."""
    if configured and request.places(_lets_programs_search):
        return True
    names = tool_names(request)
    if any(name.endswith(RETRIEVAL_TOOL) for name in names):
        return True
    if not any("toolsearch" in name.lower().replace("_", "") for name in names):
        return False
    return bool(request.places(_announces_retrieval))


def _announces_retrieval(message: TextMessage) -> bool:
    return announces(message.native, RETRIEVAL_TOOL)


def _lets_programs_search(message: TextMessage) -> bool:
    return lists_tools(message) and "ALL_TOOLS" in json.dumps(message.native)


def is_understood(request: RequestText) -> bool:
    """Whether all blocks of the messages are of known types."""
    if request.format != "anthropic":
        return all(request.value(key) is None for key in SERVER_STATE_KEYS)
    return not request.places(_is_strange)


def _is_strange(message: TextMessage) -> bool:
    content = message.native.get("content")
    if isinstance(content, str):
        return False
    return not isinstance(content, list) or not all(
        isinstance(block, dict) and block.get("type") in KNOWN_BLOCKS for block in content
    )


class Prunable(NamedTuple):
    """A tool output of a request that may leave it: the place of its message, and its tokens."""

    key: Key
    place: int
    tokens: int


def plan_cold(draft: Draft, keep_tokens: int) -> list[Prunable]:
    """The outputs to prune at a cold cache: none if that frees too little."""
    chosen = _unprotected(draft, prunables(draft, round(keep_tokens * COLD_KEEP_SHARE)))
    freed = sum(each.tokens - PLACEHOLDER_TOKENS for each in chosen)
    return chosen if freed >= MIN_TOKENS else []


def plan_needed(draft: Draft, keep_tokens: int) -> list[Prunable]:
    """The outputs to prune after the provider refused the request as too long."""
    return _unprotected(draft, prunables(draft, keep_tokens, unread=True))


def prunables(draft: Draft, keep_tokens: int, *, unread: bool = False) -> list[Prunable]:
    """The recorded tool outputs that are old enough to leave, in order: all before the newest `keep_tokens`. With
    `unread` also those that no reply of the model follows yet: it has not seen them, also if a reply to them was cut
    off."""
    rate, pins = draft.conversation.tokens_per_byte, draft.conversation.edits.pins
    outputs = [
        Prunable(key, place, round(output.size * rate)) for place, key, output in draft.outputs() if key not in pins
    ]
    kept, until = 0, len(outputs)
    while until and kept <= keep_tokens:
        until -= 1
        kept += outputs[until].tokens
    if kept <= keep_tokens:
        return []
    end = len(draft.messages) if unread else reply_start(draft.request)
    known = draft.conversation.catalog.outputs
    old = outputs[: until + 1]
    return [each for each in old if each.tokens >= MIN_RESULT_TOKENS and each.place < end and each.key in known]


def reply_start(request: RequestText) -> int:
    """The message with which the model's last reply begins; 0 if there is none. In the Responses API a reply is several
    items."""
    places = request.places("is_models")
    last = len(places) - 1
    while last > 0 and places[last - 1] == places[last] - 1:
        last -= 1
    return places[last] if places else 0


def _unprotected(draft: Draft, candidates: Sequence[Prunable]) -> list[Prunable]:
    if not candidates:
        return []
    conversation = draft.conversation
    outputs, pinned = conversation.catalog.outputs, _pinned(conversation)
    calls, again = [], {}
    for _, key, _ in draft.outputs():
        if (known := outputs.get(key)) is not None:
            calls.append(MadeCall(key[0], known.output.tool, known.output.argument, known.recorded_at))
        if (source := conversation.refetches.source(key)) is not None:
            again[key[0]] = source
    kept = protected_calls(calls, again)
    return [each for each in candidates if each.key[0] not in kept and each.key not in pinned]


def _pinned(conversation: Conversation) -> set[Key]:
    """The outputs that the user or the model has pinned."""
    if not conversation.settings.pin:
        return set()
    known = sorted(conversation.catalog.outputs.items(), key=lambda each: (each[1].output.seq, each[1].output.block))
    pinned = outputs_of_pins(conversation.settings.pin, [each.output for _, each in known])
    places = {(output.seq, output.block) for output in pinned}
    return {key for key, each in known if (each.output.seq, each.output.block) in places}
