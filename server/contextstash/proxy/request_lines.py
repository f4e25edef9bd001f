"""Lines of requests: whether a request continues another one, by the messages that both have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import compress, count
from operator import is_not

from contextstash.messages.request.text import RequestText, TextMessage

Line = tuple[TextMessage, ...]

MIN_SAME_SHARE = 0.5
"""Of an earlier request, so many messages are unchanged and in their places if the client only edited some of them, as
when it clears old results. Another conversation has hardly any in common."""


def common_start(known: Sequence[TextMessage], messages: Sequence[TextMessage]) -> int:
    """How many messages two lists have in common at the start. Breakpoints do not count: they move."""
    # Without a loop over equal ones: this is asked some times for each request, and some have two thousand messages.
    for place in compress(count(), map(is_not, known, messages)):
        if known[place].plain != messages[place].plain:
            return place
    return min(len(known), len(messages))


def begins_with(request: RequestText, line: Line) -> bool:
    """Whether a request begins with all messages of a line."""
    return common_start(line, request.messages) == len(line)


def has_reply(line: Line) -> bool:
    """Whether the model has spoken in it. What was said before is not enough to know a conversation by: many begin with
    the same words."""
    return any(message.is_models for message in line)


def goes_back(line: Line, request: RequestText) -> bool:
    """Whether a request of the same client continues `line` after the client changed it: a person went back to an
    earlier message, or the client edited old messages in place.

    Parallel agents begin with the same messages too. They are told apart by where they differ: two replies to the same
    request, or two results of the same calls, followed by further work of the agent and not by words of a person."""
    common = common_start(line, request.messages)
    if common in (len(line), len(request.messages)) or _is_edited(line, request.messages, common):
        return True
    if common == 0:
        return False
    new, old = request.messages[common], line[common]
    is_parallel = (new.is_models and old.is_models) or bool(new.results and old.results)
    return not (is_parallel and any(message.results for message in behind_reply(request.messages)))


def _is_edited(line: Line, messages: Line, common: int) -> bool:
    """Whether most messages of the line are in their places, replies behind the first message that differs too."""
    same = [place for place, (old, new) in enumerate(zip(line, messages, strict=False)) if old.plain == new.plain]
    behind = any(place > common and line[place].is_models for place in same)
    return behind and len(same) >= MIN_SAME_SHARE * len(line)


def behind_reply(messages: Line) -> Line:
    """The messages behind the last reply of the model: results of its calls, and perhaps a reminder by the client."""
    last = max((place for place, message in enumerate(messages) if message.is_models), default=-1)
    return messages[last + 1 :]


def prefix_marks(format_name: str, messages: Line) -> list[str]:
    """A hash of each beginning of a list of messages, the shortest first, by which it is known after a restart."""
    chain, marks = hashlib.sha256(format_name.encode()), []
    for message in messages:
        chain.update(message.noted(_digest))
        marks.append(chain.hexdigest()[:32])
    return marks


def line_mark(format_name: str, messages: Line) -> str:
    """The last one of these hashes."""
    digests = b"".join(message.noted(_digest) for message in messages)
    return hashlib.sha256(format_name.encode() + digests).hexdigest()[:32]


def _digest(message: TextMessage) -> bytes:
    text = json.dumps(message.plain, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
