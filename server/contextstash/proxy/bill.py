"""The bill of a session: what the provider reported of its requests, and what it would have without contextstash.

    conversation.state = booked(prepared, usage, at=time.time())

Without contextstash: the request as the client wrote it, without our tools and hand-offs, and without what our tools
fetched. What the model read again by its own tools is not found, and stands in both numbers.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from contextstash.configuration.windows_and_prices import model_facts, price_of
from contextstash.messages.detection import get_format
from contextstash.messages.request import RequestText, TextMessage
from contextstash.messages.usage import with_cache
from contextstash.outputs.own_tools import is_own_call
from contextstash.proxy.conversations import AskedRequest, Line, behind_reply, common_start
from contextstash.proxy.edits import Prepared
from contextstash.proxy.plan import cache_seconds, writes_long
from contextstash.safety.sanitize import OF_SESSION
from contextstash.view.session_counters import MIN_GROWTH
from contextstash_storage.records import ProxiedSession, ProxiedTotals, Usage

MAX_STEP = 2.0
"""A request counts as if its bytes had at most so many times the tokens of the ones before, and at least the inverse:
new tool definitions, or reasoning that the provider drops, change a prompt far more than its texts do."""

PRIOR_TOKENS = 20_000
"""What is known weighs as much as so many new tokens: one large output of another kind changes little."""

IMAGE_KEYS = (b'"image"', b'"image_url"', b'"input_image"')
"""What stands in a message with an image, in any of the formats."""

MAX_DAYS = 62
"""Days of a session whose totals are kept. Beyond them, a receipt counts the older days of a session as well."""

CALL_BYTES = 250
"""Of a call and its result, besides the output: their ids, names and punctuation in JSON, as in recorded sessions of
Claude Code."""


def booked(prepared: Prepared, usage: Usage | None, at: float) -> ProxiedSession:
    """The conversation's state after a reply with this usage. Without one nothing is known of its cost."""
    state = on_its_day(prepared.conversation.state, at)
    changes: dict[str, Any] = {
        "requests": state.requests + 1,
        "edited": state.edited + prepared.edited,
        "prunes": state.prunes + bool(prepared.pruned),
        "last_at": at,
        "cache_seconds": cache_seconds(prepared.request),
    }
    if usage is not None:
        changes |= _billed(prepared, usage, state)
    return state.model_copy(update=changes)


def _billed(prepared: Prepared, usage: Usage, state: ProxiedSession) -> dict[str, Any]:
    """What changes of the state, and of what the conversation knows of its last billed request."""
    conversation, messages = prepared.conversation, prepared.request.messages
    own = {call for each in messages for call in each.noted(_own_calls)}
    fetched = sum(CALL_BYTES + each.size for message in messages for each in message.results if each.call_id in own)
    rate, around = conversation.tokens_per_byte, sum(each.noted(_hand_off_bytes) for each in messages)
    added = round((fetched + around + _own_tools(prepared.asked)) * rate)
    # A request longer than the window cannot be sent; without what was fetched it is that much shorter.
    model = model_facts(str(state.model or ""))
    most = model.window + fetched * rate if model.known else math.inf
    unedited = _unedited(prepared, usage, most)
    would_be = None if _only_fetches(messages, own) else _without(unedited, added, conversation.added)
    new_rate = _tokens_per_byte(prepared, usage.prompt_tokens)
    conversation.added, conversation.sent_bytes = added, sent_bytes(prepared)
    paid = price_of(state.model, usage)
    direct = 0.0 if would_be is None else price_of(state.model, would_be)
    changes: dict[str, Any] = {
        "sent": state.sent + usage.prompt_tokens,
        "direct": state.direct + (would_be.prompt_tokens if would_be else 0),
        "prompt": usage.prompt_tokens,
        "direct_prompt": unedited.prompt_tokens,
        "tokens_per_byte": new_rate,
    }
    if paid is not None and direct is not None:
        changes["priced"] = state.priced + 1
        changes["dollars_paid"] = state.dollars_paid + paid
        changes["dollars_direct"] = state.dollars_direct + direct
    return changes


def on_its_day(state: ProxiedSession, at: float) -> ProxiedSession:
    """The state, with its totals kept as those at the start of the day, if this is the day's first request."""
    day = datetime.fromtimestamp(at, UTC).date().isoformat()
    if day in state.days:
        return state
    totals = ProxiedTotals(**{name: getattr(state, name) for name in ProxiedTotals.model_fields})
    return state.model_copy(update={"days": dict(list({**state.days, day: totals}.items())[-MAX_DAYS:])})


def _size_of(request: RequestText) -> int:
    """Bytes of what the provider counts as the prompt: system prompt, tools, messages."""
    around = [request.fields[key] for key in ("system", "tools", "instructions") if key in request.fields]
    return sum(span.end - span.start for span in around) + request.spans[-1].end - request.spans[0].start


def sent_bytes(prepared: Prepared) -> int:
    """The bytes of what was sent of the prompt."""
    return _size_of(prepared.request) - len(prepared.request.body) + len(prepared.body)


def _unedited(prepared: Prepared, usage: Usage, most: float) -> Usage:
    """What the provider would have reported of the request as the client wrote it, of at most so many tokens. What it
    did not find in its cache for another reason than our edits, such as other tools, a rewind, or an entry that it
    dropped, it would have missed as well."""
    prompt, read, former = usage.prompt_tokens, usage.cached_tokens, prepared.conversation.state.direct_prompt
    direct = max(prompt, round(min(prompt + prepared.saved, most)))
    known = min(former, direct) if former else direct
    if prepared.changed and former and not prepared.cold and read:
        cached = max(read, known)  # without our edit, all of the former request
    else:
        whole = 2 * read >= prompt  # else all that was read stands before the first output that was left out
        cached = max(read, min(known, read + (prepared.saved if whole else 0)))
    plain = max(0, prompt - read - usage.cache_write_tokens)
    written = max(0, direct - cached - plain) if usage.cache_write_tokens else 0
    found = with_cache(usage, cached, written, long=writes_long(prepared.request))
    return found.model_copy(update={"prompt_tokens": direct})


def _without(unedited: Usage, added: int, before: int) -> Usage:
    """The usage without the tokens that contextstash adds: those that stood in the request before were read from the
    cache."""
    whole = min(unedited.prompt_tokens, added)
    known = min(whole, before, unedited.cached_tokens)
    prompt = unedited.prompt_tokens - whole
    read = min(unedited.cached_tokens - known, prompt)
    less = with_cache(unedited, read, max(0, unedited.cache_write_tokens - (whole - known)))
    return less.model_copy(update={"prompt_tokens": prompt})


def _tokens_per_byte(prepared: Prepared, prompt: int) -> float:
    """By how many tokens the prompt has grown for each new byte: the mean so far, moved towards what this request says.
    The whole prompt says less: it has tokens that the body does not show, such as how the provider writes tool
    definitions, and images have bytes that are no tokens."""
    conversation, messages = prepared.conversation, prepared.request.messages
    rate = conversation.tokens_per_byte
    tokens, size = prompt - conversation.state.prompt, sent_bytes(prepared) - conversation.sent_bytes
    if not conversation.sent_bytes or tokens < MIN_GROWTH or size < MIN_GROWTH:
        return rate
    new = messages[common_start(conversation.line, messages) :]
    if any(key in message.raw for message in new for key in IMAGE_KEYS):
        return rate
    seen = min(max(tokens / size, rate / MAX_STEP), rate * MAX_STEP)
    return rate + (seen - rate) * tokens / (tokens + PRIOR_TOKENS)


def _own_tools(asked: AskedRequest) -> int:
    """Bytes of the definitions of our own tools."""
    return sum(len(json.dumps(tool)) for name, tool in asked.tools if is_own_call(name))


def _hand_off_bytes(message: TextMessage) -> int:
    """Bytes of our hand-offs in a message. Results of tools may quote one."""
    if OF_SESSION.encode() not in message.raw or message.is_models or message.results:
        return 0
    content = message.native.get("content")
    blocks = [{"text": content}] if isinstance(content, str) else content or ()
    texts = (block.get("text") for block in blocks if isinstance(block, dict))
    return sum(len(text) for text in texts if isinstance(text, str) and OF_SESSION in text)


def _own_calls(message: TextMessage) -> frozenset[str]:
    """The ids of the calls of our own tools that a message of the model makes."""
    blocks = get_format(message.format).read(message.native).blocks if message.is_models else ()
    calls = (block for block in blocks if block.type == "tool_call" and block.call_id)
    return frozenset(str(call.call_id) for call in calls if is_own_call(call.tool or "", call.argument or ""))


def _only_fetches(messages: Line, own: set[str]) -> bool:
    """Whether all that is new in a request, reminders of the client aside, are results of these calls: without
    contextstash it would not have been made."""
    new = [message for message in behind_reply(messages) if message.native.get("role") != "system"]
    return bool(new) and all(
        message.results and all(each.call_id in own for each in message.results) for message in new
    )
