"""Prepares a request: what is sent in place of what the client wrote, or the original if there is any doubt."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from contextstash.context.view.cached_prune import (
    AUTOMATIC,
    FIVE_MINUTES,
    ONE_HOUR,
    CachedPrune,
    CachePrices,
    CacheState,
    Prunable,
    affordable,
    is_cold,
    plan_cached_prune,
    plan_needed_prune,
)
from contextstash.context.view.pinned_outputs import outputs_of_pins
from contextstash.context.view.protected_outputs import MadeCall, protected_calls
from contextstash.context.view.thinking_blocks import preserves_thinking
from contextstash.formats.request_edits import MessageEdit, SummaryOf, edited
from contextstash.formats.request_text import RequestText, TextMessage, has_long_breakpoint
from contextstash.hosts.request_identity import announces, is_compaction
from contextstash.proxy.cache_anchor import anchor, anchor_place, takes_anchor
from contextstash.proxy.conversations import Conversation, is_tool_list, tool_names
from contextstash.proxy.other_parts import OtherPart, newest_inputs, other_parts, pinned_parts
from contextstash.proxy.part_kinds import TOOL_OUTPUTS_ONLY, PartKinds
from contextstash.service.requests.proxied import Pin, ProxiedEdits
from contextstash.service.requests.proxied_parts import MessagePart
from contextstash_storage.records import Native, Output

logger = logging.getLogger(__name__)

RETRIEVAL_TOOL = "get_archived_output"

RESTORE_TOOL = "restore_outputs"
"""Brings an image back, which no text can."""

PLACEHOLDER_TOKENS = 70
"""What a placeholder takes on average, measured on recorded sessions; the exact one is made when it is needed."""

MIN_RESULT_TOKENS = 200
"""A smaller result is not pruned: its room is that of a few placeholders, and it is often the one relevant fact."""

DEFAULT_KEEP_TOKENS = 8_000
"""Tokens of the newest tool results that stay: about ten outputs, as many as the preset `rolling` keeps. Replayed on
recorded sessions, 12,000 cost 2 % more (bench/proxy). Less would save more, but the model works with what it has just
read."""

COLD_KEEP_SHARE = 0.5
"""The share of these tokens that stays if the cache is cold: after a pause the model is done with what it had read
these outputs for, and what leaves now costs nothing. A guess."""

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


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """What a prune leaves: the newest tokens of tool outputs, and with `only_reads` all outputs but those of calls that
    show what is there, which can be made again. `others` are the other parts that it takes."""

    keep_tokens: int = DEFAULT_KEEP_TOKENS
    only_reads: bool = False
    others: PartKinds = TOOL_OUTPUTS_ONLY

    @property
    def quarter(self) -> PruneLimits:
        """The limits for a request that is too long still."""
        return replace(self, keep_tokens=self.keep_tokens // 4)


@dataclass(frozen=True)
class Prepared:
    """A request ready to be sent. `saved` are the tokens that the edits take out; `pruned` says how many outputs were
    pruned for this request; `cold` whether the provider's cache had expired."""

    conversation: Conversation
    request: RequestText
    body: bytes
    prices: CachePrices
    started: float
    saved: int = 0
    pruned: int = 0
    cold: bool = False
    texts: Mapping[int, MessageEdit] = field(default_factory=dict)

    @property
    def edited(self) -> bool:
        return self.body is not self.request.body

    def as_original(self) -> Prepared:
        """The same request without any edit."""
        return replace(self, body=self.request.body, saved=0, pruned=0, texts={})


def prices_of(request: RequestText) -> CachePrices:
    """The prices of the cache that the request's breakpoints ask for: of two kinds the longer one."""
    if request.format != "anthropic":
        return AUTOMATIC
    around = [request.value("system"), request.value("tools")]
    long = any(message.has_long_breakpoint for message in request.messages)
    long = long or any(isinstance(blocks, list) and has_long_breakpoint(blocks) for blocks in around)
    return ONE_HOUR if long else FIVE_MINUTES


def offers_tool(request: RequestText, tool: str, *, configured: bool = False) -> bool:
    """Whether the model can call a tool of ours: it is offered, or named for a tool search. `configured` says that the
    client is known to have our server: Codex does not name the tools of MCP servers to a model that writes programs,
    but lets the program search for them."""
    if configured and any(message.derived("searches", _lets_programs_search) for message in request.messages):
        return True
    names = tool_names(request)
    if any(name.endswith(tool) for name in names):
        return True
    if not any("toolsearch" in name.lower().replace("_", "") for name in names):
        return False
    return any(
        message.derived(f"announces {tool}", lambda native: announces(native, tool)) for message in request.messages
    )


def _lets_programs_search(native: Native) -> bool:
    return is_tool_list(native) and "ALL_TOOLS" in json.dumps(native)


def is_understood(request: RequestText) -> bool:
    """Whether all blocks of the messages are of known types."""
    if request.format != "anthropic":
        return request.value("previous_response_id") is None and request.value("conversation") is None
    return all(message.derived("understood", _understood) for message in request.messages)


def _understood(native: Native) -> bool:
    content = native.get("content")
    if isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(block, dict) and block.get("type") in KNOWN_BLOCKS for block in content
    )


def size_before(request: RequestText, place: int) -> int:
    """Bytes of the request in front of a message, in the order in which the provider caches them: tools, system prompt,
    messages."""
    around = [request.fields[key] for key in ("system", "tools", "instructions") if key in request.fields]
    return sum(span.end - span.start for span in around) + request.spans[place].start - request.spans[0].start


def size_of(request: RequestText) -> int:
    """Bytes of what the provider counts as the prompt."""
    last = len(request.spans) - 1
    return size_before(request, last) + request.spans[last].end - request.spans[last].start


def pinned_edits(
    conversation: Conversation, request: RequestText, edits: ProxiedEdits | None = None
) -> dict[int, MessageEdit]:
    """What the session's edits (by default those in force) change in this request, by message."""
    edits = edits or conversation.edits
    pins, strips = edits.pins, edits.strips
    others = pinned_parts(conversation, request, edits)
    recorded = conversation.same_messages(request) if strips else 0
    found: dict[int, MessageEdit] = {}
    for place, message in enumerate(request.messages):
        texts = _pinned_texts(message, pins) if pins else {}
        stripped = False
        if place < min(recorded, len(conversation.positions)) and message.thinks:
            seq = conversation.positions[place]
            stripped = any(strip.first_seq <= seq <= strip.last_seq for strip in strips)
        if texts or stripped or place in others:
            found[place] = MessageEdit(texts, stripped, parts=others[place].texts if place in others else {})
    return found


def may_show(conversation: Conversation, request: RequestText) -> bool:
    """Whether the edits in force may follow those that the former request showed. Models that check prefixes refuse
    thinking whose beginning has changed since: a prune that was stored too late for the request before waits."""
    if conversation.edits is conversation.shown or not _checks_thinking(conversation, request):
        return True
    return not _bound_thinking(conversation, request, _first_changed(conversation, request))


def _first_changed(conversation: Conversation, request: RequestText) -> int:
    """The first message that the edits in force show in another way than those of the former request did."""
    before, now = pinned_edits(conversation, request, conversation.shown), pinned_edits(conversation, request)
    changed = [place for place in before.keys() | now.keys() if before.get(place) != now.get(place)]
    return min(changed, default=len(request.messages))


def _bound_thinking(conversation: Conversation, request: RequestText, first: int) -> list[int]:
    """The messages from this one on whose thinking is shown."""
    shown = pinned_edits(conversation, request)
    return [
        place
        for place in range(first, len(request.messages))
        if request.messages[place].thinks and not (place in shown and shown[place].thinking_left_out)
    ]


def _checks_thinking(conversation: Conversation, request: RequestText) -> bool:
    """Whether the API refuses thinking behind an edit: the model checks it, and the request does not let it drop it."""
    if request.format != "anthropic" or not preserves_thinking(conversation.state.model):
        return False
    thinking = request.value("thinking")
    binding = thinking.get("block_binding") if isinstance(thinking, dict) else None
    return not (isinstance(binding, dict) and binding.get("prefix_mismatch_behavior") == "drop_block")


def _pinned_texts(message: TextMessage, pins: Mapping[str, Pin]) -> dict[tuple[str | int, ...], str]:
    """The placeholders of a message's results. The hash is compared too: some clients use an id for several calls."""
    return {
        result.path: pins[result.call_id].text
        for result in message.results
        if result.call_id in pins and message.hashes.get(result.path) == pins[result.call_id].sha256
    }


def pinned_summaries(conversation: Conversation, request: RequestText) -> list[SummaryOf]:
    """The summaries that stand for messages of this request: those of which it still has all messages."""
    if not conversation.edits.summaries:
        return []
    count = min(conversation.same_messages(request), len(conversation.positions))
    place_of = {seq: place for place, seq in enumerate(conversation.positions[:count])}
    found = []
    for summary in conversation.edits.summaries:
        first, last = place_of.get(summary.first_seq), place_of.get(summary.last_seq)
        if first is not None and last is not None and last + 1 < len(request.messages):
            found.append(SummaryOf(first, last, summary.text))
    return joined(found)


def joined(summaries: Sequence[SummaryOf]) -> list[SummaryOf]:
    """The summaries; those of adjacent messages become one message, since two of the user may not follow each other."""
    found: list[SummaryOf] = []
    for summary in sorted(summaries, key=lambda each: each.first):
        if found and found[-1].last + 1 == summary.first:
            former = found.pop()
            summary = SummaryOf(former.first, summary.last, f"{former.text}\n\n{summary.text}")
        found.append(summary)
    return found


def rendered(
    conversation: Conversation, request: RequestText, prices: CachePrices, now: float, *, cold: bool, pruned: int = 0
) -> Prepared:
    """The request with the session's edits. Raises JsonPositionError if a place is not as expected."""
    edits = pinned_edits(conversation, request)
    unchanged = cold or conversation.edits is conversation.shown
    former = edits if unchanged else pinned_edits(conversation, request, conversation.shown)
    edits |= anchor(request, edits, former)
    summaries = pinned_summaries(conversation, request)
    body, _ = edited(request, edits, summaries)
    saved = _saved_tokens(conversation, request, len(request.body) - len(body))
    return Prepared(conversation, request, body, prices, now, max(0, saved), pruned, cold, edits)


def _saved_tokens(conversation: Conversation, request: RequestText, freed: int) -> int:
    """The tokens of the bytes that the edits freed. An image takes tokens by its pixels, not by its bytes."""
    left_out = pinned_parts(conversation, request, conversation.edits) if conversation.edits.images else {}
    for place, parts in left_out.items():
        freed -= sum(len(request.messages[place].raw[slice(*request.messages[place].span(p))]) for p in parts.images)
    return round(freed * conversation.tokens_per_byte) + sum(sum(p.images.values()) for p in left_out.values())


def shown_before(conversation: Conversation, request: RequestText) -> list[int]:
    """Tokens in front of each message, and at last of the whole request, as they are shown with the pinned
    placeholders. What the provider counted of the last request and its bytes do not explain stands in front of all."""
    found = _before(conversation, request, conversation.edits)
    last, unseen = conversation.request, 0.0
    if last is not None and conversation.state.prompt:
        unseen = conversation.state.prompt - _before(conversation, last, conversation.shown)[-1]
    return [max(0, round(at + unseen)) for at in found]


def _before(conversation: Conversation, request: RequestText, edits: ProxiedEdits) -> list[float]:
    """The same by the bytes alone."""
    rate = conversation.tokens_per_byte
    at = size_before(request, 0) * rate
    found = [at]
    for message in request.messages:
        hidden = [message.sizes.get(each.path, 0) for each in message.results if each.call_id in edits.pins]
        hidden += [len(each.text) for each in message.inputs if each.call_id in edits.inputs] if edits.inputs else []
        at += len(message.raw) * rate - sum(max(0.0, size * rate - PLACEHOLDER_TOKENS) for size in hidden)
        found.append(at)
    return found


@dataclass(frozen=True, slots=True)
class Sized:
    """Something of a message that may leave the request: its name in a plan, its tokens, and whether it is recorded."""

    key: str
    tokens: int
    is_recorded: bool = True


def prunables(
    conversation: Conversation,
    request: RequestText,
    keep_tokens: int,
    before: Sequence[int],
    others: Mapping[int, Sequence[OtherPart]],
) -> list[Prunable]:
    """The recorded tool results and `others` that are old enough to be replaced, in order. `before` are the tokens in
    front of each message."""
    kept = after = replies = 0
    young: int | None = None  # replies since the newest result became old enough
    found: list[Prunable] = []
    for place in range(len(request.messages) - 1, -1, -1):
        message = request.messages[place]
        after += message.blocks
        replies += is_reply_start(request, place)
        shown = [*_shown_results(conversation, message), *(Sized(o.key, o.tokens) for o in others.get(place, ()))]
        for each in reversed(shown):
            kept += each.tokens
            if kept <= keep_tokens or each.tokens < MIN_RESULT_TOKENS:
                continue
            young = replies if young is None else young
            if each.is_recorded:
                carried = replies - young
                found.append(Prunable(each.key, before[place], each.tokens, PLACEHOLDER_TOKENS, after, carried))
    return found[::-1]


def _shown_results(conversation: Conversation, message: TextMessage) -> list[Sized]:
    """The results of a message that are not pruned yet."""
    rate, pins = conversation.tokens_per_byte, conversation.edits.pins
    return [
        Sized(
            result.call_id,
            round(message.sizes.get(result.path, 0) * rate),
            _is_recorded(conversation, message, result.call_id, result.path),
        )
        for result in message.results
        if result.call_id not in pins
    ]


def is_reply_start(request: RequestText, place: int) -> bool:
    """Whether a reply of the model begins with this message: each reply stands for one request. In the Responses API a
    reply is several items."""
    return request.messages[place].is_models and (place == 0 or not request.messages[place - 1].is_models)


def _is_recorded(conversation: Conversation, message: TextMessage, call_id: str, path: Any) -> bool:
    """Whether exactly this output can be retrieved."""
    known = conversation.catalog.outputs.get(call_id)
    return known is not None and known.output.sha256 == message.hashes.get(path)


def made_calls(conversation: Conversation, request: RequestText) -> list[MadeCall]:
    """The recorded tool calls of the request, in order."""
    outputs = conversation.catalog.outputs
    return [
        MadeCall(result.call_id, known.output.tool, known.output.argument, known.recorded_at)
        for message in request.messages
        for result in message.results
        if (known := outputs.get(result.call_id)) is not None
    ]


def pruned_at(conversation: Conversation) -> dict[str, float]:
    """When the outputs of calls were pruned, in seconds since 1970."""
    return {call_id: pin.pinned_at for call_id, pin in conversation.edits.pins.items()}


def plan(
    conversation: Conversation, request: RequestText, prices: CachePrices, limits: PruneLimits, *, cold: bool
) -> CachedPrune:
    """Which further outputs to prune for this request: none unless that pays."""
    before = shown_before(conversation, request)
    state = CacheState(
        cold,
        conversation.state.prompt,
        conversation.state.requests,
        prices,
        _surely_cached(conversation, request, before),
        affordable(conversation.state.paid, conversation.state.direct_cost),
    )
    others = other_parts(conversation, request, limits.others)
    keep_tokens = round(limits.keep_tokens * (COLD_KEEP_SHARE if cold else 1))
    candidates = prunables(conversation, request, keep_tokens, before, others)
    first = plan_cached_prune(candidates, state)
    if not first.chosen:
        return first
    return plan_cached_prune(_unprotected(conversation, request, candidates, limits), state)


def _surely_cached(conversation: Conversation, request: RequestText, before: Sequence[int]) -> tuple[int, ...]:
    """The tokens in front of the breakpoints that stay where they are: behind the system prompt, and our own."""
    place = anchor_place(pinned_edits(conversation, request, conversation.shown)) if takes_anchor(request) else None
    return (before[0],) if place is None else (before[0], before[place + 1])


def plan_needed(conversation: Conversation, request: RequestText, limits: PruneLimits) -> CachedPrune:
    """Which outputs to prune after the provider refused the request as too long."""
    others = other_parts(conversation, request, limits.others)
    candidates = prunables(conversation, request, limits.keep_tokens, shown_before(conversation, request), others)
    return plan_needed_prune(_unprotected(conversation, request, candidates, limits))


def _unprotected(
    conversation: Conversation, request: RequestText, candidates: Sequence[Prunable], limits: PruneLimits
) -> list[Prunable]:
    calls = made_calls(conversation, request)
    kept = protected_calls(calls, pruned_at(conversation)) | _kept_calls(conversation)
    if limits.others.inputs:
        kept |= newest_inputs(calls)
    if limits.only_reads:
        kept |= {call.call_id for call in calls if not call.reads}
    return [each for each in candidates if each.key not in kept]


def _kept_calls(conversation: Conversation) -> set[str]:
    """The ids of the calls whose outputs the user or the model has pinned."""
    if not conversation.kept:
        return set()
    known = sorted(conversation.catalog.outputs.items(), key=lambda each: (each[1].output.seq, each[1].output.block))
    pinned = outputs_of_pins(conversation.kept, [each.output for _, each in known])
    places = {(output.seq, output.block) for output in pinned}
    return {call_id for call_id, each in known if (each.output.seq, each.output.block) in places}


def outputs_of(conversation: Conversation, chosen: Sequence[Prunable]) -> list[Output]:
    """The recorded outputs of a plan."""
    outputs = conversation.catalog.outputs
    return [outputs[each.key].output for each in chosen if each.key in outputs]


def parts_of(
    conversation: Conversation, request: RequestText, limits: PruneLimits, chosen: Sequence[Prunable]
) -> list[MessagePart]:
    """The other parts of a plan."""
    keys = {each.key for each in chosen}
    found = other_parts(conversation, request, limits.others).values()
    return [other.part for others in found for other in others if other.key in keys]


def is_side_call(request: RequestText) -> bool:
    """Whether the client asks for its own summary: its edits stay as they are, and no new one is made for it."""
    return is_compaction(request.latest.native)


@dataclass(frozen=True, slots=True)
class ThinkingChoice:
    """Whether an edit is possible at all, and from which message of the request on thinking must be left out."""

    possible: bool
    strip_from: int | None = None


def thinking_choice(
    conversation: Conversation, request: RequestText, chosen: Sequence[Prunable], limits: PruneLimits
) -> ThinkingChoice:
    """What an edit does to later thinking. Models that check prefixes refuse thinking behind an edit. At the end of a
    tool loop it can be left out; within one the model needs it, so that the edit waits, unless the request lets the API
    drop it."""
    if not _checks_thinking(conversation, request):
        return ThinkingChoice(True)
    first = _first_of(conversation, request, {each.key for each in chosen}, limits)
    later = _bound_thinking(conversation, request, min(first, _first_changed(conversation, request)))
    if not later:
        return ThinkingChoice(True)
    in_loop = bool(request.latest.results)
    return ThinkingChoice(False) if in_loop else ThinkingChoice(True, later[0])


def _first_of(conversation: Conversation, request: RequestText, keys: set[str], limits: PruneLimits) -> int:
    """The first message that holds one of what is named by `keys`."""
    others = other_parts(conversation, request, limits.others)
    for place, message in enumerate(request.messages):
        if keys & {*(result.call_id for result in message.results), *(other.key for other in others.get(place, ()))}:
            return place
    return 0


def cold_now(conversation: Conversation, now: float) -> bool:
    """Whether the provider's cache of this conversation has surely expired. It is not known to be cold if no request
    of it was ever seen."""
    state = conversation.state
    return state.requests > 0 and is_cold(now, state.last_at, state.cache_seconds)
