"""The bill of a session: what the provider reported of its requests, and what it would have without contextstash.

    bill, state = billed(prepared, usage, facts, window=None, at=time.time())
    state = bill.added_to(state, facts)

From the one number to the other lead steps, each a usage of its own: the cache as it would have been without a rewrite,
the request as the client wrote it, without what contextstash adds, and with what the client's earlier compactions took
out. The differences of their prices are the levers, so that together they are exactly the difference of the whole.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from contextstash.base.bounded_cache import BoundedCache
from contextstash.messages.usage import with_cache
from contextstash.outputs.own_tools import is_own_call
from contextstash.proxy.conversations import DEFAULT_TOKENS_PER_BYTE, AskedRequest, Conversation
from contextstash.proxy.edits import Prepared, size_of
from contextstash.proxy.plan import writes_long
from contextstash.proxy.request_lines import is_side_call, lists_tools
from contextstash.proxy.senders import Sender
from contextstash.safety.sanitize import OF_SESSION
from contextstash.view.session_counters import MIN_GROWTH
from contextstash_storage.records import Lever, ProxiedSession, ProxiedTotals, Usage

logger = logging.getLogger(__name__)

COMPACTS_AT = 0.92
"""The share of the window at which clients compact: Claude Code's."""

GUESSED_WINDOW = 200_000
"""Tokens of an unknown model's window, for the same estimate."""

OWN_COMPACTION = 0.7
"""A compaction is one that `contextstash run --window` has asked for if the window was filled to this share of its
size. Clients count the newest output in another way than the provider, so they may be early; if the share is too low, a
compaction that the user typed is charged too."""

MAX_STEP = 2.0
"""A request counts as if its bytes had at most so many times the tokens of the ones before, and at least the inverse:
new tool definitions, or reasoning that the provider drops, change a prompt far more than its texts do."""

PRIOR_TOKENS = 20_000
"""What is known weighs as much as so many new tokens: one large output of another kind changes little."""

UNSURE_TOKENS = 1_024
"""So few tokens more or less are not looked at: no provider caches a shorter prompt."""

LEAST_SHARE = 0.25
"""A provider that reports less than this share of what the sent texts are estimated at does not count the prompt. Texts
differ by a factor of two in tokens of a byte; if the share is too high, savings of unusual texts are not claimed."""

IMAGE_KEYS = (b'"image"', b'"image_url"', b'"input_image"')
FILE_KEYS = (b'"data"', b'"file_data"', b'"encrypted_content"', *IMAGE_KEYS)
"""What stands in a message whose contents are no text, in any of the formats."""

MAX_DAYS = 62
"""Days of a session whose totals are kept. Beyond them, a receipt counts the older days of a session as well."""

MAX_CLIENTS = 100
"""Clients whose side calls wait until their first request ends. Beyond them the oldest are not billed."""

NOTHING = Usage(prompt_tokens=0)
"""The usage of a request that would not have been made."""


@dataclass(frozen=True, slots=True)
class ModelPricing:
    """A model's window in tokens, None if it is not known; `price_of` returns what a usage costs in US dollars."""

    window: int | None = None
    price_of: Callable[[Usage], float | None] = lambda usage: None


class KnownModels:
    """Looks each model up once, in a thread: the first look-up takes half a second."""

    def __init__(self, facts_of: Callable[[str], ModelPricing]) -> None:
        self._facts_of = facts_of
        self._found: dict[object, asyncio.Future[ModelPricing]] = {}

    def of(self, model: object) -> asyncio.Future[ModelPricing]:
        """What is known of a model, as soon as it is looked up."""
        if model not in self._found:
            self._found[model] = asyncio.ensure_future(self._looked_up(str(model or "")))
        return self._found[model]

    async def _looked_up(self, model: str) -> ModelPricing:
        try:
            return await asyncio.to_thread(self._facts_of, model)
        except Exception as error:
            logger.warning("nothing is known of a model: %s", type(error).__name__)
            return ModelPricing()


@dataclass(frozen=True, slots=True)
class Step:
    """From the usage before to this one: `levers` are the tokens by which each of them makes the difference."""

    usage: Usage
    levers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Bill:
    """What the provider reported of a request, and the steps to what it would have reported without contextstash."""

    usage: Usage
    steps: tuple[Step, ...] = ()

    def added_to(self, state: ProxiedSession, facts: ModelPricing) -> ProxiedSession:
        """The session's state with the price of the request and the effect of each lever."""
        usages = [self.usage, *(step.usage for step in self.steps)]
        prices = [0.0 if usage is NOTHING else facts.price_of(usage) for usage in usages]
        known = [price for price in prices if price is not None]
        has_price = len(known) == len(prices)
        levers = dict(state.levers)
        for place, step in enumerate(self.steps):
            gained = known[place + 1] - known[place] if has_price else 0.0
            whole = sum(step.levers.values())
            for name, tokens in step.levers.items():
                if tokens:  # the effect of a step is shared by tokens
                    old, share = levers.get(name, Lever()), tokens / whole if whole else 1 / len(step.levers)
                    levers[name] = Lever(tokens=old.tokens + tokens, dollars=old.dollars + gained * share)
        changes: dict[str, object] = {"levers": levers}
        if has_price:
            changes["priced"] = state.priced + 1
            changes["dollars_paid"] = state.dollars_paid + known[0]
            changes["dollars_direct"] = state.dollars_direct + known[-1]
        return state.model_copy(update=changes)


def billed(
    prepared: Prepared, usage: Usage, facts: ModelPricing, chosen: int | None, at: float
) -> tuple[Bill, ProxiedSession]:
    """The bill of a request, and the conversation's state after the reply, but for the prices. `chosen` is the size at
    which `contextstash run --window` has the client compact."""
    conversation, request = prepared.conversation, prepared.request
    refetches, rate = conversation.refetches, conversation.tokens_per_byte
    refetches.note(request, prepared.outputs(), prepared.former.pins, conversation.catalog.outputs, rate)
    added = {
        "tool_definitions": round(_own_tools(prepared) * rate),
        "hand_offs": round(_hand_offs(prepared) * rate),
        "fetched_again": refetches.tokens_in(request),
    }
    before, conversation.added = conversation.added, sum(added.values())
    # A request longer than the window cannot be sent; without what was fetched again it is that much shorter.
    most = math.inf if facts.window is None else facts.window + added["fetched_again"]
    unedited = _unedited(prepared, usage, most)
    carried = _carried(prepared, unedited.prompt_tokens, chosen, COMPACTS_AT * (facts.window or GUESSED_WINDOW))
    if refetches.only or carried is None:
        lever = "retrieval_requests" if refetches.only else "smaller_window"
        bill = Bill(usage, (Step(NOTHING, {lever: -usage.prompt_tokens}),))
    else:
        less = _less(unedited, added, before)
        more = (_with_history(less.usage, carried),) if carried else ()
        bill = Bill(usage, (_cache_kept(usage, unedited), Step(unedited, prepared.removed), less, *more))
    state, again = on_its_day(conversation.state, at), refetches.new_reads()
    changes = {
        **_counted(prepared, at),
        "sent": state.sent + usage.prompt_tokens,
        "direct": state.direct + bill.steps[-1].usage.prompt_tokens,
        "refetched": state.refetched + len(again),
        "refetched_tokens": state.refetched_tokens + sum(again),
        "prompt": usage.prompt_tokens,
        "direct_prompt": unedited.prompt_tokens,
        "tokens_per_byte": _tokens_per_byte(prepared, usage.prompt_tokens),
        "carried": carried or 0,
    }
    return bill, state.model_copy(update=changes)


def booked_without_usage(prepared: Prepared, at: float) -> ProxiedSession:
    """The state after a reply without usage: nothing is known of its cost. The size of the prompt is estimated, so that
    what the next reply reports is compared with this request and not with one before it."""
    conversation = prepared.conversation
    state, changes = on_its_day(conversation.state, at), _counted(prepared, at)
    if state.prompt and conversation.sent_bytes:
        grown = sent_bytes(prepared) - conversation.sent_bytes
        prompt = max(0, state.prompt + round(grown * conversation.tokens_per_byte))
        changes |= {"prompt": prompt, "direct_prompt": prompt + prepared.saved}
    return state.model_copy(update=changes)


def _counted(prepared: Prepared, at: float) -> dict[str, Any]:
    state = prepared.conversation.state
    return {
        "requests": state.requests + 1,
        "edited": state.edited + prepared.edited,
        "prunes": state.prunes + bool(prepared.pruned),
        "last_at": at,
        "cache_seconds": prepared.cache_seconds,
    }


def is_credible(prepared: Prepared, usage: Usage) -> bool:
    """Whether the reported prompt may hold the texts that were sent. What the model wrote is left out, since providers
    drop its reasoning, and so are images and files, of which the bytes are no tokens."""
    rate = min(prepared.conversation.tokens_per_byte, DEFAULT_TOKENS_PER_BYTE)
    if usage.prompt_tokens >= LEAST_SHARE * rate * sent_bytes(prepared):
        return True
    texts = (each.raw for each in prepared.messages if not each.is_models)
    size = sum(len(raw) for raw in texts if not any(key in raw for key in FILE_KEYS))
    least = rate * (size - len(prepared.request.body) + len(prepared.body))
    return least < UNSURE_TOKENS or usage.prompt_tokens >= LEAST_SHARE * least


def sent_bytes(prepared: Prepared) -> int:
    """The bytes of what was sent of the prompt."""
    return size_of(prepared.request) - len(prepared.request.body) + len(prepared.body)


def on_its_day(state: ProxiedSession, at: float) -> ProxiedSession:
    """The state, with its totals kept as those at the start of the day, if this is the day's first request."""
    day = datetime.fromtimestamp(at, UTC).date().isoformat()
    if day in state.days:
        return state
    totals = ProxiedTotals(**{name: getattr(state, name) for name in ProxiedTotals.model_fields})
    kept = dict(list({**state.days, day: totals}.items())[-MAX_DAYS:])
    return state.model_copy(update={"days": kept})


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
    return Step(kept, {"cache_rewrites": -again})


def _less(unedited: Usage, added: Mapping[str, int], before: int) -> Step:
    """The usage without what contextstash adds: what stood in the request before was read from the cache."""
    whole = min(unedited.prompt_tokens, sum(added.values()))
    known = min(whole, before, unedited.cached_tokens)
    prompt = unedited.prompt_tokens - whole
    read = min(unedited.cached_tokens - known, prompt)
    less = with_cache(unedited, read, max(0, unedited.cache_write_tokens - (whole - known)))
    return Step(less.model_copy(update={"prompt_tokens": prompt}), {name: -each for name, each in added.items()})


def _with_history(usage: Usage, carried: int) -> Step:
    """The usage with the history that the client would still send: read from the cache, if anything is."""
    read, written = usage.cached_tokens, usage.cache_write_tokens
    more = with_cache(usage, read + carried, written) if read else usage
    more = with_cache(usage, read, written + carried) if written and not read else more
    return Step(more.model_copy(update={"prompt_tokens": usage.prompt_tokens + carried}), {"smaller_window": carried})


def _carried(prepared: Prepared, unedited: int, chosen: int | None, point: float) -> int | None:
    """The tokens that compactions have taken out of the window by now which the client would not have made; None if
    this is the request for one. `point` is where it would compact without us."""
    conversation, state = prepared.conversation, prepared.conversation.state
    before = state.direct_prompt + state.carried
    if is_side_call(prepared.request):
        ours = chosen is not None and OWN_COMPACTION * chosen <= state.prompt and before < point
        conversation.lost = max(0, before) if ours else 0
        return None if ours else 0
    carried = state.carried if chosen else 0
    if conversation.compacting:
        carried = max(0, conversation.lost - unedited)
    return carried if unedited + carried <= point else 0


def _tokens_per_byte(prepared: Prepared, prompt: int) -> float:
    """By how many tokens the prompt has grown for each new byte: the mean so far, moved towards what this request says.
    The whole prompt says less: it has tokens that the body does not show, such as how the provider writes tool
    definitions, and images have bytes that are no tokens."""
    conversation = prepared.conversation
    rate = conversation.tokens_per_byte
    tokens, size = prompt - conversation.state.prompt, sent_bytes(prepared) - conversation.sent_bytes
    if not conversation.sent_bytes or tokens < MIN_GROWTH or size < MIN_GROWTH:
        return rate
    new = prepared.messages[conversation.same_messages(prepared.request) :]
    if any(key in message.raw for message in new for key in IMAGE_KEYS):
        return rate
    seen = min(max(tokens / size, rate / MAX_STEP), rate * MAX_STEP)
    return rate + (seen - rate) * tokens / (tokens + PRIOR_TOKENS)


def _own_tools(prepared: Prepared) -> int:
    """Bytes of the definitions of our own tools."""
    request = prepared.request
    listed = [request.messages[place].native.get("tools") for place in request.places(lists_tools)]
    return sum(len(json.dumps(tool)) for tools in (request.value("tools"), *listed) for tool in _own(tools))


def _own(tools: Any) -> Iterator[Any]:
    for tool in tools if isinstance(tools, list) else ():
        inner = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(inner, dict):
            continue
        name, inside = inner.get("name"), tool.get("tools")
        if is_own_call(name if isinstance(name, str) else None) or (inside and name == "mcp__contextstash"):
            yield tool
        else:
            yield from _own(inside)


def _hand_offs(prepared: Prepared) -> int:
    """Bytes of our hand-offs. Results of tools may quote one."""
    marked = (prepared.messages[place] for place in prepared.request.places(_has_hand_off))
    blocks = [block for message in marked for block in _texts(message.native.get("content"))]
    return sum(len(text) for text in blocks if OF_SESSION in text)


def _has_hand_off(message: Any) -> bool:
    return OF_SESSION.encode() in message.raw and not message.is_models and not message.results


def _texts(content: Any) -> Iterator[str]:
    for block in [{"text": content}] if isinstance(content, str) else content or ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"]


class SideCalls:
    """The bills of requests that belong to no conversation, such as one for a title: they wait for the main
    conversation of their client."""

    def __init__(self, models: KnownModels, clock: Callable[[], float]) -> None:
        self._models = models
        self._clock = clock
        self._waiting: BoundedCache[tuple[str, Sender], list[tuple[Bill, object]]] = BoundedCache(MAX_CLIENTS)

    def add(self, asked: AskedRequest, usage: Usage) -> None:
        """Keep the bill of a request."""
        if asked.client_id is not None:
            payer = (asked.client_id, asked.sender)
            waiting = self._waiting.get(payer) or []
            self._waiting.set(payer, [*waiting, (Bill(usage), asked.request.value("model"))])

    async def bill_to(self, conversation: Conversation) -> None:
        """Add the bills that wait for this conversation to its state: those of its sender, since anyone can name a
        client's id."""
        if conversation.sender is None:
            return
        for bill, model in self._waiting.pop((conversation.session_id, conversation.sender), ()):
            facts = await asyncio.shield(self._models.of(model))
            state, tokens = on_its_day(conversation.state, self._clock()), bill.usage.prompt_tokens
            changes = {"sent": state.sent + tokens, "direct": state.direct + tokens}
            conversation.state = bill.added_to(state.model_copy(update=changes), facts)
