"""What leaves a request: old tool outputs, if the cache is cold anyway or the provider refused the request as too long.

At a warm cache an edit would make the provider write everything behind it again. So then only what the user or the
model asked for is changed, by prune, compact, restore and pins.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from contextstash.clients.request_identity import announces
from contextstash.messages.request import RequestText, TextMessage
from contextstash.proxy.conversations import AskedRequest, Conversation, lists_tools
from contextstash.view.ladder import PrunePlan, Step, plan_prune
from contextstash.view.outputs_in_use import MadeCall, protected_calls
from contextstash.view.pinned_outputs import unpinned_outputs
from contextstash.view.session_snapshot import SessionSnapshot

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

_LONG = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*"1h"')
"""A breakpoint that keeps the cache for an hour. Within a string of JSON no quotation mark stands without a backslash:
no text can hold one."""

SLACK_SECONDS = 15
"""Seconds after the end of a cache's time until it counts as cold: the provider's clock started elsewhere."""

MIN_TOKENS = 3_000
"""Tokens that a prune at a cold cache must free: less is not worth an output that may be fetched again."""

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
    client is known to have our server, `project` is the folder in which it was started; `one_user` that no other
    program can reach this proxy, whatever credentials its requests hold."""

    keep_tokens: int = DEFAULT_KEEP_TOKENS
    prune: bool = True
    step_seconds: float = STEP_SECONDS
    configured: bool = False
    project: str | None = None
    one_user: bool = False


def writes_long(request: RequestText) -> bool:
    """Whether the cache keeps what the request writes for an hour, at a higher price; of two kinds of breakpoints the
    longer one counts."""
    return request.format == "anthropic" and _LONG.search(request.body) is not None


def cache_seconds(request: RequestText) -> int:
    """How long the cache that a request asks for is kept."""
    return LONG_CACHE_SECONDS if request.format != "anthropic" or writes_long(request) else CACHE_SECONDS


def cold_now(conversation: Conversation, now: float) -> bool:
    """Whether the provider's cache of this conversation has surely expired, by the time since its last use alone: a
    single request that read nothing from it says little, since requests are routed to different machines. It is not
    known to be cold if no request of it was ever seen."""
    state = conversation.state
    return state.requests > 0 and now - state.last_at > state.cache_seconds + SLACK_SECONDS


def offers_retrieval(asked: AskedRequest, *, configured: bool = False) -> bool:
    """Whether the model can call our tool that returns an output: it is offered, or named for a tool search.
    `configured` says that the client is known to have our server: Codex does not name the tools of MCP servers to a
    model that writes programs, but lets the program search for them."""
    messages, names = asked.request.messages, [name for name, _ in asked.tools]
    if configured and any("ALL_TOOLS" in json.dumps(each.native) for each in messages if lists_tools(each)):
        return True
    if any(name.endswith(RETRIEVAL_TOOL) for name in names):
        return True
    searches = any("toolsearch" in name.lower().replace("_", "") for name in names)
    return searches and any(each.noted(_announces) for each in messages)


def _announces(message: TextMessage) -> bool:
    return announces(message.native, RETRIEVAL_TOOL)


def is_understood(request: RequestText) -> bool:
    """Whether all blocks of the messages are of known types."""
    return request.format != "anthropic" or not any(each.noted(_is_strange) for each in request.messages)


def _is_strange(message: TextMessage) -> bool:
    content = message.native.get("content")
    if isinstance(content, str):
        return False
    kinds = [block.get("type") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return not isinstance(content, list) or len(kinds) < len(content) or not KNOWN_BLOCKS.issuperset(kinds)


def old_outputs(keep_tokens: int, minimum_tokens: int = 0, *, unread: bool = False) -> Step:
    """The recorded outputs that are old enough to leave: all before the newest `keep_tokens`, but for pinned ones and
    those in use, if that frees more than the minimum. Outputs behind the model's last reply, which it has perhaps not
    seen, leave only with `unread`."""

    def step(snapshot: SessionSnapshot) -> PrunePlan:
        messages = (entry.message for entry in reversed(snapshot.entries) if entry.message)
        reply = next((message.seq for message in messages if message.role == "assistant"), 0)
        end = math.inf if unread else reply
        calls = [MadeCall(output.handle, output.tool, output.argument) for output in snapshot.outputs.values()]
        in_use = protected_calls(calls)
        outputs = {
            place: output
            for place, output in unpinned_outputs(snapshot).items()
            if place[0] < end and output.handle not in in_use
        }
        return plan_prune(snapshot, outputs, protect_tokens=keep_tokens, minimum_tokens=minimum_tokens)

    return step
