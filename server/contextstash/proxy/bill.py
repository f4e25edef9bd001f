"""The bill of a session: what the provider reported of its requests, and what it would have without contextstash.

    conversation.state = booked(prepared, usage, at=time.time())

Without contextstash: the request as the client wrote it, without our tools, and without what they fetched. What the
model read again by its own tools is not found, and stands in both numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from contextstash.messages.base import with_cache
from contextstash.messages.detection import get_format
from contextstash.messages.request import TextMessage
from contextstash.outputs.placeholders import is_own_call
from contextstash.proxy.conversations import behind_reply
from contextstash.proxy.edits import Prepared, cache_seconds, writes_long
from contextstash.window.models import price_of, window_of
from contextstash_storage.records import ProxiedSession, ProxiedTotals, Usage

TOKENS_PER_BYTE = 1 / 3.4
"""Of what is left out of requests: measured on recorded sessions of Claude Code."""

DOLLARS = ("dollars_paid", "dollars_direct")

MAX_DAYS = 62
"""Days of a session whose totals are kept. Beyond them, a receipt counts the older days of a session as well."""


def booked(prepared: Prepared, usages: Sequence[Usage], at: float) -> ProxiedSession:
    """The conversation's state after a reply with this usage, and those of the API's own compactions, which it would
    have made without contextstash too. Without any nothing is known of its cost."""
    state, day = prepared.conversation.state, datetime.fromtimestamp(at, UTC).date().isoformat()
    if day not in state.days:  # the totals at the start of the day are kept
        totals = ProxiedTotals(**{name: getattr(state, name) for name in ProxiedTotals.model_fields})
        state = state.model_copy(update={"days": dict([*state.days.items(), (day, totals)][-MAX_DAYS:])})
    changes: dict[str, Any] = {
        "requests": state.requests + 1,
        "edited": state.edited + prepared.edited,
        "last_at": at,
        "cache_seconds": cache_seconds(prepared.request),
    }
    if usages:
        changes |= _billed(prepared, usages[0], state)
        for each in usages[1:]:
            changes |= {name: changes[name] + each.prompt_tokens for name in ("sent", "direct")}
            price = price_of(state.model, each) or 0.0
            changes |= {name: changes[name] + price for name in DOLLARS if name in changes}
    return state.model_copy(update=changes)


def _billed(prepared: Prepared, usage: Usage, state: ProxiedSession) -> dict[str, Any]:
    """What changes of the state by a reply's usage."""
    messages, before = prepared.request.messages, prepared.conversation.added
    own = {call for each in messages for call in each.noted(_own_calls)}
    fetched = sum(each.size for message in messages for each in message.results if each.call_id in own)
    tools = sum(len(json.dumps(tool)) for name, tool in prepared.asked.tools if is_own_call(name))
    added = prepared.conversation.added = round((fetched + tools) * TOKENS_PER_BYTE)
    unedited = _unedited(prepared, usage)
    # A request that only fetches would not have been made without contextstash: all that is new in it, reminders of the
    # client aside, are results of our calls.
    new = [each.results for each in behind_reply(messages) if each.native.get("role") != "system"]
    fetches = bool(new) and all(results and all(each.call_id in own for each in results) for results in new)
    would_be = None if fetches else _without(unedited, added, before)
    paid, direct = price_of(state.model, usage), price_of(state.model, would_be) if would_be else 0.0
    changes: dict[str, Any] = {
        "sent": state.sent + usage.prompt_tokens,
        "direct": state.direct + (would_be.prompt_tokens if would_be else 0),
        "direct_prompt": unedited.prompt_tokens,
    }
    if paid is not None and direct is not None:
        changes["priced"] = state.priced + 1
        changes["dollars_paid"] = state.dollars_paid + paid
        changes["dollars_direct"] = state.dollars_direct + direct
    return changes


def _unedited(prepared: Prepared, usage: Usage) -> Usage:
    """What the provider would have reported of the request as the client wrote it, which is never longer than the
    model's window. What it did not find in its cache for another reason than our edits, it would have missed too."""
    prompt, read, former = usage.prompt_tokens, usage.cached_tokens, prepared.conversation.state.direct_prompt
    left_out = max(0, round((len(prepared.request.body) - len(prepared.body)) * TOKENS_PER_BYTE))
    window = window_of(str(prepared.conversation.state.model or "")) or math.inf
    direct = max(prompt, round(min(prompt + left_out, window)))
    known = min(former, direct) if former else direct
    if prepared.cold or not read:
        cached = read
    elif prepared.changed:  # without our edit, all of the former request
        cached = max(read, known)
    else:
        cached = max(read, min(known, read + left_out))
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


def _own_calls(message: TextMessage) -> frozenset[str]:
    """The ids of the calls of our own tools that a message of the model makes."""
    blocks = get_format(message.format).read(message.native).blocks if message.is_models else ()
    calls = (block for block in blocks if block.type == "tool_call" and block.call_id)
    return frozenset(str(call.call_id) for call in calls if is_own_call(call.tool or "", call.argument or ""))
