"""The parts of a request that contextstash added: its tool definitions, hand-offs, and what was fetched again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from contextstash.messages.breakpoints import content_of
from contextstash.messages.request.text import RequestText, TextMessage
from contextstash.outputs.own_tools import is_own_call
from contextstash.proxy.bills import Added
from contextstash.proxy.edits import Prepared
from contextstash.proxy.request_lines import lists_tools
from contextstash.safety.sanitize import OF_SESSION
from contextstash.view.rereads import Key

HAND_OFF = OF_SESSION.encode()
"""What each part of a hand-off says in its first line."""


def added_by_us(prepared: Prepared, *, compacts: bool) -> Added:
    """What contextstash has added to a request, in tokens by lever. `compacts` says whether it has chosen when the
    client compacts."""
    conversation, request = prepared.conversation, prepared.request
    rate, rereads = conversation.tokens_per_byte, conversation.rereads
    rereads.note(request, *_times(prepared), rate, compacts=compacts)
    tokens = {
        "tool_definitions": round(_own_tools(request) * rate),
        "hand_offs": round(sum(map(_hand_off_size, _messages(request))) * rate),
        "fetched_again": rereads.tokens_in(request),
    }
    before, conversation.added = conversation.added, sum(tokens.values())
    return Added(tokens, before, retrieves=rereads.are_all)


def _times(prepared: Prepared) -> tuple[dict[Key, float], dict[Key, float]]:
    """Since when outputs of a request were placeholders in the one before, and when outputs were recorded."""
    pins, known = prepared.former.pins, prepared.conversation.catalog.outputs
    hidden: dict[Key, float] = {}
    recorded: dict[Key, float] = {}
    for _, name, output in prepared.outputs() if pins else ():
        key = output.call_id, output.sha256
        if name in pins:
            hidden[key] = pins[name].pinned_at
        if name in known:
            recorded[key] = known[name].recorded_at
    return hidden, recorded


def _own_tools(request: RequestText) -> int:
    """Bytes of the definitions of our own tools."""
    listed = [request.messages[place].native.get("tools") for place in request.places(lists_tools)]
    return sum(len(json.dumps(tool)) for tools in (request.value("tools"), *listed) for tool in _own(tools))


def _own(tools: Any) -> Iterator[Any]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function")
        name = (inner if isinstance(inner, dict) else tool).get("name")
        inside = tool.get("tools")
        if isinstance(inside, list) and name == "mcp__contextstash":
            yield tool
        elif isinstance(inside, list):
            yield from _own(inside)
        elif isinstance(name, str) and is_own_call(name):
            yield tool


def _messages(request: RequestText) -> Iterable[TextMessage]:
    return (request.messages[place] for place in request.places(_has_hand_off))


def _has_hand_off(message: TextMessage) -> bool:
    """Whether a message that the model did not write says it: results of tools may quote one."""
    return HAND_OFF in message.raw and not message.is_models and not message.results


def _hand_off_size(message: TextMessage) -> int:
    blocks = content_of(message.native)
    texts = [block.get("text") for block in blocks if isinstance(block, dict)] or [message.native.get("content")]
    return sum(len(text) for text in texts if isinstance(text, str) and OF_SESSION in text)
