"""What a request holds because of contextstash: its tool definitions, hand-offs, and what was fetched again."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from contextstash.context.text.sanitize import OF_SESSION
from contextstash.context.tool_outputs.own_tools import is_own_call
from contextstash.formats import FORMATS
from contextstash.formats.breakpoints import content_of
from contextstash.formats.request.text import RequestText, TextMessage
from contextstash.proxy.bills import Added
from contextstash.proxy.conversations import Conversation, lists_tools

OWN_NAMES = (b"contextstash", b"get_archived_output")
"""One of these is in each call of the retrieval tools, whatever the client calls our server."""

HAND_OFF = OF_SESSION.encode()
"""What each part of a hand-off says in its first line."""


def added_by_us(conversation: Conversation, request: RequestText) -> Added:
    """What contextstash has added to a request, in tokens by lever."""
    rate = conversation.tokens_per_byte
    tokens = {
        "tool_definitions": round(_own_tools(request) * rate),
        "hand_offs": round(sum(map(_hand_off_size, _messages(request))) * rate),
        "fetched_again": _fetched(conversation),
    }
    before, conversation.added = conversation.added, sum(tokens.values())
    return Added(tokens, before, retrieves=_only_retrieves(request))


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


def _fetched(conversation: Conversation) -> int:
    """The tokens of outputs that were fetched again, by our own tools or by the call that was pruned, as far as the
    request still holds them."""
    catalog, positions = conversation.catalog, conversation.positions
    for name, known in islice(catalog.outputs.items(), conversation.looked_at, None):
        conversation.looked_at += 1
        if is_own_call(known.output.tool, known.output.argument):
            conversation.retrievals.add(name)
    found = 0
    for name in conversation.retrievals | conversation.counted:
        known_output = catalog.outputs.get(name)
        if known_output is None or name in conversation.edits.pins:
            continue
        at = bisect_left(positions, known_output.output.seq)
        if at < len(positions) and positions[at] == known_output.output.seq:
            found += known_output.output.tokens
    return found


def _only_retrieves(request: RequestText) -> bool:
    """Whether all that is new in a request are results of our own tools."""
    last = next((place for place in range(len(request.messages) - 1, -1, -1) if request.messages[place].is_models), -1)
    new = request.messages[last + 1 :]
    if last < 0 or not new or not all(message.results for message in new if message.native.get("role") != "system"):
        return False
    first = last
    while first > 0 and request.messages[first - 1].is_models:
        first -= 1
    called: list[bool] = []
    reply = request.messages[first : last + 1]
    if not any(name in message.raw for message in reply for name in OWN_NAMES):
        return False
    for message in reply:
        blocks = FORMATS[request.format].read(message.native).blocks
        called += [is_own_call(block.tool, block.argument) for block in blocks if block.type == "tool_call"]
    return bool(called) and all(called)
