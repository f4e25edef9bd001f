"""Prepares a request: what is sent in place of what the client wrote, or the original if there is any doubt."""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter, itemgetter

from contextstash.configuration.models import CachePriceRatios
from contextstash.context.view.outputs_in_use import MadeCall, protected_calls
from contextstash.context.view.pinned_outputs import outputs_of_pins
from contextstash.context.view.prune_cost import (
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
from contextstash.context.view.rereads import Key
from contextstash.formats.request.edits import MessageEdit, SummaryOf, edited
from contextstash.formats.request.text import Fact, RequestText, TextMessage, has_long_breakpoint
from contextstash.formats.request.whole import SERVER_STATE_KEYS
from contextstash.hosts.request_identity import announces
from contextstash.proxy.conversations import AskedRequest, Conversation
from contextstash.proxy.part_kinds import TOOL_OUTPUTS_ONLY, PartKinds
from contextstash.proxy.refetches import keys_of
from contextstash.proxy.request_lines import lists_tools, tool_names
from contextstash.proxy.requests.bound_reasoning import ShownEdits
from contextstash.proxy.requests.cache_anchor import anchor, takes_anchor
from contextstash.proxy.requests.cleared_results import asked_edits, clear_more, in_force
from contextstash.proxy.requests.occurrences import has_results, result_names
from contextstash.proxy.requests.old_thinking import old_thoughts, turn_start
from contextstash.proxy.requests.other_parts import OtherPart, newest_inputs, other_parts, pinned_parts
from contextstash.proxy.requests.pinned_edits import (
    NO_EDIT,
    pinned_summaries,
    saved_by_results,
    stripped,
    thinking_size,
)
from contextstash.proxy.requests.shown_sizes import PLACEHOLDER_TOKENS, ShownSizes, shown_sizes
from contextstash.service.requests.proxied import ProxiedEdits
from contextstash.service.requests.proxied_parts import MessagePart
from contextstash_storage.records import Output

logger = logging.getLogger(__name__)

RETRIEVAL_TOOL = "get_archived_output"

RESTORE_TOOL = "restore_outputs"
"""Brings an image back, which no text can."""

MIN_RESULT_TOKENS = 200
"""A smaller result is not pruned: its room is that of a few placeholders, and it is often the one relevant fact."""

DEFAULT_KEEP_TOKENS = 8_000
"""Tokens of the newest tool results that stay: about ten outputs, as many as the preset `rolling` keeps. Replayed on
recorded sessions, 12,000 cost 2 % more (bench/proxy). Less would save more, but the model works with what it has just
read."""

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
    """A request ready to be sent. `removed` are the tokens that the edits take out, by lever; `pruned` says how many
    outputs were pruned for this request; `cold` whether the provider's cache had expired; `still_cached` how many
    tokens the cache holds in spite of edits that the former request did not show, None if there are none; `former` are
    the edits that one did show. `clears` says that the body asks the provider to clear old results."""

    conversation: Conversation
    request: RequestText
    body: bytes
    prices: CachePrices
    started: float
    removed: Mapping[str, int] = field(default_factory=dict)
    pruned: int = 0
    cold: bool = False
    still_cached: int | None = None
    texts: Mapping[int, MessageEdit] = field(default_factory=dict)
    asked: AskedRequest | None = None
    former: ProxiedEdits = field(default_factory=ProxiedEdits)
    clears: bool = False

    @property
    def edited(self) -> bool:
        return self.body is not self.request.body

    @property
    def left_behind(self) -> bool:
        """Whether another request went on from the same messages, and the conversation with it."""
        return self.asked is not None and self.asked.left_behind

    @property
    def saved(self) -> int:
        """The tokens that the edits take out."""
        return max(0, sum(self.removed.values()))

    def as_original(self) -> Prepared:
        """The same request without any edit."""
        return replace(self, body=self.request.body, removed={}, pruned=0, texts={}, clears=False)


def prices_of(request: RequestText, ratios: CachePriceRatios | None) -> CachePrices:
    """The prices of the cache that the request asks for, by its model's price table if that is known."""
    prices = _cache_of(request)
    if ratios is None:
        return prices
    return replace(prices, read=ratios.read, write=ratios.long_write if prices is ONE_HOUR else ratios.write)


def _cache_of(request: RequestText) -> CachePrices:
    """The cache that the request's breakpoints ask for: of two kinds the longer one."""
    if request.format != "anthropic":
        return AUTOMATIC
    around = [request.value("system"), request.value("tools")]
    long = bool(request.places(_has_long_breakpoint)) or any(
        isinstance(blocks, list) and has_long_breakpoint(blocks) for blocks in around
    )
    return ONE_HOUR if long else FIVE_MINUTES


def _has_long_breakpoint(message: TextMessage) -> bool:
    return message.has_long_breakpoint


def offers_tool(request: RequestText, tool: str, *, configured: bool = False) -> bool:
    """Whether the model can call a tool of ours: it is offered, or named for a tool search. `configured` says that the
    client is known to have our server: Codex does not name the tools of MCP servers to a model that writes programs,
    but lets the program search for them."""
    if configured and request.places(_lets_programs_search):
        return True
    names = tool_names(request)
    if any(name.endswith(tool) for name in names):
        return True
    if not any("toolsearch" in name.lower().replace("_", "") for name in names):
        return False
    return bool(request.places(_announcement_of(tool)))


@cache
def _announcement_of(tool: str) -> Fact:
    return lambda message: announces(message.native, tool)


def _lets_programs_search(message: TextMessage) -> bool:
    return lists_tools(message) and "ALL_TOOLS" in json.dumps(message.native)


def is_understood(request: RequestText) -> bool:
    """Whether all blocks of the messages are of known types."""
    if request.format != "anthropic":
        return all(request.value(key) is None for key in SERVER_STATE_KEYS)
    return not request.places(_is_strange)


def _is_strange(message: TextMessage) -> bool:
    content = message.native.get("content")
    if isinstance(content, str):
        return False
    return not isinstance(content, list) or not all(
        isinstance(block, dict) and block.get("type") in KNOWN_BLOCKS for block in content
    )


def rendered(original: Prepared, shown: ShownEdits, pruned: int = 0) -> Prepared:
    """The request with the session's edits. Raises JsonPositionError if a place is not as expected."""
    conversation, request = original.conversation, original.request
    same = conversation.edits is conversation.shown
    still = None if same else _still_cached(conversation, request, original.prices, shown.first)
    conversation.drop_ends(shown.first)
    if original.cold:
        conversation.cold_end = len(request.messages)
    anchored = anchor(request, shown.now, shown.now if original.cold else shown.former)
    edits = {**shown.now, **anchored}
    conversation.anchor = next(iter(anchored), None)
    summaries = pinned_summaries(conversation, request)
    clearings = in_force(conversation, request)
    noted = {each.place: replace(edits.get(each.place, NO_EDIT), note=each.note) for each in clearings}
    body, _ = edited(request, {**edits, **noted}, summaries, asked_edits(request, clearings))
    removed = _removed_tokens(conversation, request, summaries)
    return replace(
        original,
        body=body,
        removed=removed,
        pruned=pruned,
        still_cached=still,
        texts=edits,
        former=conversation.shown,
        clears=bool(clearings),
    )


def _still_cached(conversation: Conversation, request: RequestText, prices: CachePrices, first: int) -> int:
    """The tokens in front of message `first`, the first change of what the former request showed, that the provider
    surely finds: if it looks back a few blocks only, those up to the end of an earlier request."""
    sizes = shown_sizes(conversation, request)
    [before] = sizes.before([first])
    if prices.look_back is None:
        return before
    return max((a for a in _surely_cached(conversation, request, sizes, prices) if a <= before), default=0)


def _removed_tokens(conversation: Conversation, request: RequestText, summaries: Sequence[SummaryOf]) -> dict[str, int]:
    """The tokens that the edits take out, by lever: of tool outputs and inputs as they are counted from their text,
    since their bytes hold other tokens than those of the whole request, and calibrated by what the provider reports."""
    edits, rate, messages = conversation.edits, conversation.tokens_per_byte, request.messages
    hidden = {place for summary in summaries for place in range(summary.first, summary.last + 1)}
    parts = [each for place, each in pinned_parts(conversation, request, edits).items() if place not in hidden]
    outputs = sum(saved for place, saved in saved_by_results(conversation, request).items() if place not in hidden)
    thoughts = sum(thinking_size(messages[p]) for p in stripped(conversation, request, edits) if p not in hidden)
    freed = sum(len(messages[place].raw) for place in hidden) - sum(len(each.text) for each in summaries)
    inputs = sum(each.saved for each in parts) * conversation.calibration
    return {
        "tool_outputs": round(outputs * conversation.calibration),
        "inputs_and_images": round(inputs) + sum(each.images for each in parts),
        "old_thinking": round(thoughts * rate),
        "summaries": round(freed * rate),
    }


def prunables(
    conversation: Conversation,
    request: RequestText,
    keep_tokens: int,
    sizes: ShownSizes,
    others: Mapping[int, Sequence[OtherPart]],
    *,
    unread: bool = False,
) -> list[Prunable]:
    """The recorded tool results, `others` and thinking that are old enough to leave, in order. With `unread` also
    results that no reply of the model follows yet: it has not seen them, also if a reply to them was cut off."""
    # Few operations for each part: this is asked for each request, and some have a thousand.
    shown = _shown_parts(conversation, request, others)
    kept, until = 0, len(shown)
    while until and kept <= keep_tokens:
        until -= 1
        kept += shown[until][2]
    large = (at for at in range(until, -1, -1) if kept > keep_tokens and shown[at][2] >= MIN_RESULT_TOKENS)
    newest = next(large, None)
    if newest is None:
        return []
    starts = reply_starts(request)
    until_old = bisect_left(starts, shown[newest][0])  # replies until the newest result that is old enough
    last_reply = len(request.messages) if unread else starts[-1] if starts else 0
    recorded = conversation.catalog.hashes
    old = [
        part
        for part in shown[: newest + 1]
        if part[2] >= MIN_RESULT_TOKENS and part[0] < last_reply and part[3] in (None, recorded.get(part[1]))
    ]
    before = sizes.before([part[0] for part in old])
    found = [
        Prunable(key, at, tokens, PLACEHOLDER_TOKENS, until_old - bisect_left(starts, place))
        for (place, key, tokens, _), at in zip(old, before, strict=True)
    ]
    if found and (thoughts := old_thoughts(conversation, request)):
        since = len(starts) - bisect_left(starts, turn_start(request))
        before = sizes.before([each.place for each in thoughts])
        found += [Prunable(each.key, at, each.tokens, 0, since) for each, at in zip(thoughts, before, strict=True)]
        found.sort(key=attrgetter("before"))
    return found


_ShownPart = tuple[int, str, int, str | None]
"""A part that is shown: the place of its message, its name in a plan, its tokens, and the SHA-256 by which it must be
recorded, so that it can be retrieved; None if it is stored as it leaves."""


def _shown_parts(
    conversation: Conversation, request: RequestText, others: Mapping[int, Sequence[OtherPart]]
) -> list[_ShownPart]:
    """The tool outputs and `others` that are not pruned yet, in order."""
    rate, pins, messages = conversation.tokens_per_byte, conversation.edits.pins, request.messages
    name = result_names(conversation, request)
    found: list[_ShownPart] = [
        (place, key, round(size * rate), sha256)
        for place in request.places(has_results)
        for call_id, size, sha256 in messages[place].outputs
        if (key := name(place, call_id)) not in pins
    ]
    if others:
        found += [(place, each.key, each.tokens, None) for place, parts in others.items() for each in parts]
        found.sort(key=itemgetter(0))
    return found


def reply_starts(request: RequestText) -> list[int]:
    """The messages with which a reply of the model begins: each reply stands for one request. In the Responses API a
    reply is several items."""
    places = request.places(_is_models)
    return [place for number, place in enumerate(places) if not number or places[number - 1] != place - 1]


def _is_models(message: TextMessage) -> bool:
    return message.is_models


def made_calls(conversation: Conversation, request: RequestText) -> list[MadeCall]:
    """The recorded tool calls of the request, in order."""
    outputs, name = conversation.catalog.outputs, result_names(conversation, request)
    return [
        MadeCall(key, known.output.tool, known.output.argument, known.recorded_at)
        for place in request.places(has_results)
        for result in request.messages[place].results
        if (known := outputs.get(key := name(place, result.call_id))) is not None
    ]


def _read_again(conversation: Conversation, request: RequestText) -> dict[str, Key]:
    """The outputs that the model has read again after a prune, by name, and which output each has shown again."""
    rereads, name = conversation.rereads, result_names(conversation, request)
    return {
        name(place, key[0]): source
        for place in (request.places(has_results) if rereads.found else ())
        for key in keys_of(request.messages[place])
        if (source := rereads.source(key)) is not None
    }


def plan(
    conversation: Conversation, request: RequestText, prices: CachePrices, limits: PruneLimits, *, cold: bool
) -> CachedPrune:
    """Which further outputs to prune for this request: none unless that pays."""
    sizes = shown_sizes(conversation, request)
    state = CacheState(
        cold,
        conversation.state.prompt,
        conversation.state.requests,
        prices,
        _surely_cached(conversation, request, sizes, prices),
        affordable(conversation.state.paid, conversation.state.direct_cost),
    )
    others = other_parts(conversation, request, limits.others)
    keep_tokens = round(limits.keep_tokens * (COLD_KEEP_SHARE if cold else 1))
    candidates = prunables(conversation, request, keep_tokens, sizes, others)
    first = plan_cached_prune(candidates, state)
    if not first.chosen:
        return first
    chosen = plan_cached_prune(_unprotected(conversation, request, candidates, limits), state)
    if all(each.placeholder_tokens == 0 for each in chosen.chosen):
        return CachedPrune((), "only thinking, which leaves together with outputs")
    return chosen


def _surely_cached(
    conversation: Conversation, request: RequestText, sizes: ShownSizes, prices: CachePrices
) -> tuple[int, ...]:
    """The tokens in front of each place where the provider finds the end of an earlier request: behind the system
    prompt, at our own breakpoint, which is not always on the last placeholder (right after a prune it is still on the
    last one of the prune before), and where requests ended in the last blocks, in which it looks for them."""
    place = conversation.anchor if takes_anchor(request) else None
    found = [0] if place is None else [0, place + 1]
    blocks, ends = 0, conversation.ends_within(request)
    for at in range(len(request.messages), 0, -1):
        if blocks >= (prices.look_back or 0):
            break
        if at in ends and at >= conversation.cold_end:
            found.append(at)
        blocks += request.messages[at - 1].blocks
    return tuple(sizes.before(sorted(found)))


def plan_needed(conversation: Conversation, request: RequestText, limits: PruneLimits) -> CachedPrune:
    """Which outputs to prune after the provider refused the request as too long."""
    others = other_parts(conversation, request, limits.others)
    sizes = shown_sizes(conversation, request)
    candidates = prunables(conversation, request, limits.keep_tokens, sizes, others, unread=True)
    return plan_needed_prune(_unprotected(conversation, request, candidates, limits))


def let_clear(conversation: Conversation, request: RequestText, limits: PruneLimits) -> bool:
    """Let the provider clear old results that the proxy must not change, at a cold cache; whether it clears more."""
    sizes, keep_tokens = shown_sizes(conversation, request), round(limits.keep_tokens * COLD_KEEP_SHARE)
    candidates = prunables(conversation, request, keep_tokens, sizes, {})
    free = [each.key for each in _unprotected(conversation, request, candidates, limits)]
    return clear_more(conversation, request, candidates, free)


def _unprotected(
    conversation: Conversation, request: RequestText, candidates: Sequence[Prunable], limits: PruneLimits
) -> list[Prunable]:
    calls = made_calls(conversation, request)
    kept = protected_calls(calls, _read_again(conversation, request)) | _kept_calls(conversation)
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


def first_of(conversation: Conversation, request: RequestText, keys: set[str], limits: PruneLimits) -> int:
    """The first message that holds one of what is named by `keys`."""
    others, name = other_parts(conversation, request, limits.others), result_names(conversation, request)
    for place, message in enumerate(request.messages):
        named = {name(place, result.call_id) for result in message.results}
        if keys & {*named, *(other.key for other in others.get(place, ()))}:
            return place
    return 0


def cold_now(conversation: Conversation, now: float) -> bool:
    """Whether the provider's cache of this conversation has surely expired. It is not known to be cold if no request
    of it was ever seen."""
    state = conversation.state
    return state.requests > 0 and is_cold(now, state.last_at, state.cache_seconds)
