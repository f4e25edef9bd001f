"""Lines of requests: whether a request continues another one, by the messages that both have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any

from contextstash.clients.request_identity import is_compaction
from contextstash.messages.breakpoints import content_of
from contextstash.messages.request.text import RequestText, TextMessage, message_of

Line = tuple[TextMessage, ...]

MIN_SAME_SHARE = 0.5
"""Of an earlier request, so many messages are unchanged and in their places if the client only edited some of them, as
when it clears old results. Another conversation has hardly any in common."""


def common_start(known: Sequence[TextMessage], messages: Sequence[TextMessage]) -> int:
    """How many messages two lists have in common at the start. Breakpoints do not count: they move."""
    # Without a loop over equal ones: this is asked a dozen times for each request, and some have two thousand messages.
    for place in compress(count(), map(is_not, known, messages)):
        if known[place].plain != messages[place].plain:
            return place
    return min(len(known), len(messages))


def is_side_call(request: RequestText) -> bool:
    """Whether the client asks for its own summary: its edits stay as they are, and no new one is made for it."""
    return request.compacts or is_compaction(request.latest.native)


def follows_response(request: RequestText) -> bool:
    """Whether the request holds only what is new: the provider keeps the conversation (Responses API)."""
    return request.format == "openai-responses" and isinstance(request.value("previous_response_id"), str)


def replied_line(request: RequestText, line: Line, response: Mapping[str, Any] | None) -> Line:
    """The line with the reply behind it, as far as the API sends the reply as a list of items."""
    items = response.get("output") if response is not None else None
    found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return (*line, *(message_of(item, request.format) for item in found))


def tool_names(request: RequestText) -> list[str]:
    """The names of the tools that the request offers, also those in a namespace: Codex puts the tools of an MCP server
    into one, and for GPT-6 all tools into an item of the input (seen in 0.169)."""
    items = [request.messages[place].native.get("tools") for place in request.places(lists_tools)]
    return [name for tools in (request.value("tools"), *items) for name in _names(tools)]


def lists_tools(message: TextMessage) -> bool:
    """Whether an item of the input holds tool definitions and no message."""
    return message.native.get("type") == "additional_tools"


def _names(tools: object) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function")
        name = (inner if isinstance(inner, dict) else tool).get("name")
        if isinstance(name, str):
            yield name
        yield from _names(tool.get("tools"))


def has_reply(line: Sequence[TextMessage]) -> bool:
    """Whether the model has spoken in it. What was said before is not enough to know a conversation by: many begin with
    the same words."""
    return any(message.is_models for message in line)


def goes_back(line: Line, request: RequestText) -> bool:
    """Whether a request of the same client continues `line` after the client changed it: a person went back to an
    earlier message, or the client edited old messages in place.

    Parallel agents begin with the same messages too. They are told apart by where they differ: two replies to the same
    request, or two results of the same calls, followed by further work of the agent and not by words of a person."""
    common = common_start(line, request.messages)
    if common in (len(line), len(request.messages)) or is_edited(line, request.messages, common):
        return True
    if common == 0:
        return False
    new, old = request.messages[common], line[common]
    is_parallel = (new.is_models and old.is_models) or bool(new.results and old.results)
    return not (is_parallel and any(message.results for message in behind_reply(request.messages)))


def behind_reply(messages: Line) -> Line:
    """The messages behind the last reply of the model: results of its calls, and perhaps a reminder by the client."""
    last = max((place for place, message in enumerate(messages) if message.is_models), default=-1)
    return messages[last + 1 :]


def is_edited(line: Line, messages: Sequence[TextMessage], common: int) -> bool:
    """Whether most messages of the line are in their places, replies behind the first message that differs too."""
    pairs = list(zip(line, messages, strict=False))
    same = [place for place, (old, new) in enumerate(pairs) if old.plain == new.plain]
    behind = any(place > common and line[place].is_models for place in same)
    return behind and len(same) >= MIN_SAME_SHARE * len(line)


def prefix_marks(format_name: str, messages: Sequence[TextMessage]) -> list[str]:
    """A hash of each beginning of a list of messages, the shortest first."""
    chain, marks = hashlib.sha256(format_name.encode()), []
    for message in messages:
        chain.update(digest_of(message))
        marks.append(chain.hexdigest()[:32])
    return marks


def line_mark(format_name: str, line: Sequence[TextMessage]) -> str:
    """The hash by which a line is recognized after a restart; empty if the model has not spoken in it yet."""
    return prefix_marks(format_name, line)[-1] if has_reply(line) else ""


def digest_of(message: TextMessage) -> bytes:
    """A hash of the message, breakpoints aside."""
    if "digest" not in message.notes:
        text = json.dumps(message.plain, sort_keys=True)
        message.notes["digest"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    found: bytes = message.notes["digest"]
    return found


def without_prompt(message: TextMessage) -> TextMessage | None:
    """The results in a message into which the client has merged its prompt for a summary; None if it holds none."""
    if not message.results:
        return None
    content = [block for block in content_of(message.native) if not is_compaction({"content": [block]})]
    return message_of({**message.native, "content": content}, message.format)
