"""The bill of a session: what the provider reported of its requests, and what it would have without contextstash.

    conversation.state = booked(prepared, usage, facts, at=time.time())

From the one number to the other lead steps, each a usage of its own: the cache as it would have been without a rewrite,
the request as the client wrote it, and without what contextstash adds. The differences of their prices are the levers,
so that together they are exactly the difference of the whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from contextstash.messages.request.text import RequestText, TextMessage
from contextstash.messages.usage import with_cache
from contextstash.outputs.own_tools import is_own_call
from contextstash.proxy.conversations import AskedRequest
from contextstash.proxy.edits import Prepared
from contextstash.proxy.plan import cache_seconds, writes_long
from contextstash.proxy.request_lines import common_start
from contextstash.safety.sanitize import OF_SESSION
from contextstash.view.session_counters import MIN_GROWTH
from contextstash_storage.records import Lever, ProxiedSession, ProxiedTotals, Usage

MAX_STEP = 2.0
"""A request counts as if its bytes had at most so many times the tokens of the ones before, and at least the inverse:
new tool definitions, or reasoning that the provider drops, change a prompt far more than its texts do."""

PRIOR_TOKENS = 20_000
"""What is known weighs as much as so many new tokens: one large output of another kind changes little."""

IMAGE_KEYS = (b'"image"', b'"image_url"', b'"input_image"')
"""What stands in a message with an image, in any of the formats."""

MAX_DAYS = 62
"""Days of a session whose totals are kept. Beyond them, a receipt counts the older days of a session as well."""

NOTHING = Usage(prompt_tokens=0)
"""The usage of a request that would not have been made."""

Step = tuple[Usage, Mapping[str, int]]
"""From the usage before to this one: the tokens by which each lever makes the difference."""


@dataclass(frozen=True, slots=True)
class ModelPricing:
    """A model's window in tokens, None if it is not known; `price_of` returns what a usage costs in US dollars."""

    window: int | None = None
    price_of: Callable[[Usage], float | None] = lambda usage: None


def booked(prepared: Prepared, usage: Usage | None, facts: ModelPricing, at: float) -> ProxiedSession:
    """The conversation's state after a reply with this usage. Without one nothing is known of its cost; the size of the
    prompt is estimated then, so that what the next reply reports is compared with this request and not with one before
    it."""
    conversation, request = prepared.conversation, prepared.request
    state = on_its_day(conversation.state, at)
    changes: dict[str, Any] = {
        "requests": state.requests + 1,
        "edited": state.edited + prepared.edited,
        "prunes": state.prunes + bool(prepared.pruned),
        "last_at": at,
        "cache_seconds": cache_seconds(request),
    }
    if usage is not None:
        return _billed(prepared, usage, facts, state).model_copy(update=changes)
    if state.prompt and conversation.sent_bytes:
        grown = sent_bytes(prepared) - conversation.sent_bytes
        prompt = max(0, state.prompt + round(grown * conversation.tokens_per_byte))
        changes |= {"prompt": prompt, "direct_prompt": prompt + prepared.saved}
    return state.model_copy(update=changes)


def _billed(prepared: Prepared, usage: Usage, facts: ModelPricing, state: ProxiedSession) -> ProxiedSession:
    conversation, messages = prepared.conversation, prepared.request.messages
    refetches, rate = conversation.refetches, conversation.tokens_per_byte
    again = refetches.note(messages, prepared.former.pins, conversation.catalog.outputs, rate)
    added = {
        "tool_definitions": round(_own_tools(prepared.asked) * rate),
        "hand_offs": round(sum(each.noted(_hand_off_bytes) for each in messages) * rate),
        "fetched_again": refetches.tokens_in(messages),
    }
    before, conversation.added = conversation.added, sum(added.values())
    # A request longer than the window cannot be sent; without what was fetched again it is that much shorter.
    most = math.inf if facts.window is None else facts.window + added["fetched_again"]
    unedited = _unedited(prepared, usage, most)
    steps: list[Step] = [_cache_kept(usage, unedited), (unedited, prepared.removed), _less(unedited, added, before)]
    if refetches.only:
        steps = [(NOTHING, {"retrieval_requests": -usage.prompt_tokens})]
    changes = {
        "sent": state.sent + usage.prompt_tokens,
        "direct": state.direct + steps[-1][0].prompt_tokens,
        "refetched": state.refetched + len(again),
        "refetched_tokens": state.refetched_tokens + sum(again),
        "prompt": usage.prompt_tokens,
        "direct_prompt": unedited.prompt_tokens,
        "tokens_per_byte": _tokens_per_byte(prepared, usage.prompt_tokens),
    }
    return priced(state, usage, facts, steps).model_copy(update=changes)


def priced(state: ProxiedSession, usage: Usage, facts: ModelPricing, steps: Sequence[Step] = ()) -> ProxiedSession:
    """The session's state with the price of a request and the effect of each lever."""
    usages = [usage, *(step for step, _ in steps)]
    prices = [0.0 if each is NOTHING else facts.price_of(each) for each in usages]
    known = [price for price in prices if price is not None]
    has_price, levers = len(known) == len(prices), dict(state.levers)
    for place, (_, effects) in enumerate(steps):
        gained = known[place + 1] - known[place] if has_price else 0.0
        whole = sum(effects.values())
        for name, tokens in effects.items():
            if tokens:  # the effect of a step is shared by tokens
                old, share = levers.get(name, Lever()), tokens / whole if whole else 1 / len(effects)
                levers[name] = Lever(tokens=old.tokens + tokens, dollars=old.dollars + gained * share)
    changes: dict[str, object] = {"levers": levers}
    if has_price:
        changes["priced"] = state.priced + 1
        changes["dollars_paid"] = state.dollars_paid + known[0]
        changes["dollars_direct"] = state.dollars_direct + known[-1]
    return state.model_copy(update=changes)


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


def _cache_kept(usage: Usage, unedited: Usage) -> Step:
    """The usage without rewriting the cache: what is new to it is what would have been new in the unedited request."""
    fresh, usual = (each.prompt_tokens - each.cached_tokens for each in (usage, unedited))
    again = max(0, fresh - usual)
    kept = with_cache(usage, usage.cached_tokens + again, max(0, usage.cache_write_tokens - again))
    return kept, {"cache_rewrites": -again}


def _less(unedited: Usage, added: Mapping[str, int], before: int) -> Step:
    """The usage without what contextstash adds: what stood in the request before was read from the cache."""
    whole = min(unedited.prompt_tokens, sum(added.values()))
    known = min(whole, before, unedited.cached_tokens)
    prompt = unedited.prompt_tokens - whole
    read = min(unedited.cached_tokens - known, prompt)
    less = with_cache(unedited, read, max(0, unedited.cache_write_tokens - (whole - known)))
    return less.model_copy(update={"prompt_tokens": prompt}), {name: -each for name, each in added.items()}


def _tokens_per_byte(prepared: Prepared, prompt: int) -> float:
    """By how many tokens the prompt has grown for each new byte: the mean so far, moved towards what this request says.
    The whole prompt says less: it has tokens that the body does not show, such as how the provider writes tool
    definitions, and images have bytes that are no tokens."""
    conversation, messages = prepared.conversation, prepared.request.messages
    rate = conversation.tokens_per_byte
    tokens, size = prompt - conversation.state.prompt, sent_bytes(prepared) - conversation.sent_bytes
    if not conversation.sent_bytes or tokens < MIN_GROWTH or size < MIN_GROWTH:
        return rate
    new = messages[common_start(conversation.recorded, messages) :]
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
