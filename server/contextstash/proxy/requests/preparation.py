"""Prepares a request: what is sent in place of what the client wrote, or the original if there is any doubt."""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter, itemgetter

from contextstash.configuration.windows_and_prices import CachePriceRatios
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
from contextstash.formats.request.edits import edited
from contextstash.formats.request.text import Fact, RequestText, TextMessage, has_long_breakpoint
from contextstash.formats.request.whole import SERVER_STATE_KEYS
from contextstash.hosts.request_identity import announces
from contextstash.proxy.conversations import Conversation
from contextstash.proxy.options import PruneLimits
from contextstash.proxy.request_lines import lists_tools, tool_names
from contextstash.proxy.requests.cache_anchor import anchor, takes_anchor
from contextstash.proxy.requests.cleared_results import asked_edits, clear_more, in_force
from contextstash.proxy.requests.drafts import Draft, Prepared
from contextstash.proxy.requests.other_parts import (
    OtherPart,
    newest_inputs,
    old_thoughts,
    other_parts,
    span_of,
    turn_start,
)
from contextstash.proxy.requests.shown_edits import (
    PLACEHOLDER_TOKENS,
    UNCHANGED,
    ShownEdits,
    ShownSizes,
    shown_sizes,
    thinking_size,
)
from contextstash.service.requests.proxied_parts import MessagePart
from contextstash_storage.records import Output

logger = logging.getLogger(__name__)

RETRIEVAL_TOOL = "get_archived_output"

RESTORE_TOOL = "restore_outputs"
"""Brings an image back, which no text can."""

MIN_RESULT_TOKENS = 200
"""A smaller result is not pruned: its room is that of a few placeholders, and it is often the one relevant fact."""

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
    long = bool(request.places("has_long_breakpoint")) or any(
        isinstance(blocks, list) and has_long_breakpoint(blocks) for blocks in around
    )
    return ONE_HOUR if long else FIVE_MINUTES


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
    still = None if conversation.edits is conversation.shown else _still_cached(original, shown.first)
    conversation.drop_ends(shown.first)
    if original.cold:
        conversation.cold_end = len(request.messages)
    anchored = anchor(request, shown.now, shown.now if original.cold else shown.former)
    conversation.anchor = next(iter(anchored), None)
    edits = {**{place: each.edit for place, each in shown.now.items()}, **anchored}
    clearings = in_force(original)
    noted = {each.place: replace(edits.get(each.place, UNCHANGED.edit), note=each.note) for each in clearings}
    body, _ = edited(request, {**edits, **noted}, shown.summaries, asked_edits(request, clearings))
    return replace(
        original,
        body=body,
        removed=_removed_tokens(original, shown),
        pruned=pruned,
        still_cached=still,
        former=conversation.shown,
        clears=bool(clearings),
    )


def _still_cached(original: Prepared, first: int) -> int:
    """The tokens in front of message `first`, the first change of what the former request showed, that the provider
    surely finds: if it looks back a few blocks only, those up to the end of an earlier request."""
    sizes = shown_sizes(original)
    [before] = sizes.before([first])
    if original.prices.look_back is None:
        return before
    return max((a for a in _surely_cached(original, sizes) if a <= before), default=0)


def _removed_tokens(draft: Draft, shown: ShownEdits) -> dict[str, int]:
    """The tokens that the edits take out, by lever: of tool outputs and inputs as they are counted from their text,
    since their bytes hold other tokens than those of the whole request, and calibrated by what the provider reports."""
    conversation, messages = draft.conversation, draft.messages
    rate, calibration = conversation.tokens_per_byte, conversation.calibration
    hidden = {place for summary in shown.summaries for place in range(summary.first, summary.last + 1)}
    parts = {place: each for place, each in shown.now.items() if place not in hidden}
    thoughts = sum(thinking_size(messages[place]) for place, each in parts.items() if each.edit.thinking_left_out)
    freed = sum(len(messages[place].raw) for place in hidden) - sum(len(each.text) for each in shown.summaries)
    inputs = sum(each.inputs for each in parts.values()) * calibration
    return {
        "tool_outputs": round(sum(each.outputs for each in parts.values()) * calibration),
        "inputs_and_images": round(inputs) + sum(each.images for each in parts.values()),
        "old_thinking": round(thoughts * rate),
        "summaries": round(freed * rate),
    }


def prunables(
    draft: Draft, keep_tokens: int, sizes: ShownSizes, others: Sequence[OtherPart] = (), *, unread: bool = False
) -> list[Prunable]:
    """The recorded tool results, `others` and thinking that are old enough to leave, in order. With `unread` also
    results that no reply of the model follows yet: it has not seen them, also if a reply to them was cut off."""
    # Few operations for each part: this is asked for each request, and some have a thousand.
    request, shown = draft.request, _shown_parts(draft, others)
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
    recorded = draft.conversation.catalog.hashes
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
    if found and (thoughts := old_thoughts(draft)):
        since = len(starts) - bisect_left(starts, turn_start(request))
        before = sizes.before([each.place for each in thoughts])
        found += [Prunable(each.key, at, each.tokens, 0, since) for each, at in zip(thoughts, before, strict=True)]
        found.sort(key=attrgetter("before"))
    return found


_ShownPart = tuple[int, str, int, str | None]
"""A part that is shown: the place of its message, its name in a plan, its tokens, and the SHA-256 by which it must be
recorded, so that it can be retrieved; None if it is stored as it leaves."""


def _shown_parts(draft: Draft, others: Sequence[OtherPart]) -> list[_ShownPart]:
    """The tool outputs and `others` that are not pruned yet, in order."""
    rate, pins = draft.conversation.tokens_per_byte, draft.conversation.edits.pins
    found: list[_ShownPart] = [
        (place, name, round(output.size * rate), output.sha256)
        for place, name, output in draft.outputs()
        if name not in pins
    ]
    if others:
        found += [(each.place, each.key, each.tokens, None) for each in others]
        found.sort(key=itemgetter(0))
    return found


def reply_starts(request: RequestText) -> list[int]:
    """The messages with which a reply of the model begins: each reply stands for one request. In the Responses API a
    reply is several items."""
    places = request.places("is_models")
    return [place for number, place in enumerate(places) if not number or places[number - 1] != place - 1]


def made_calls(draft: Draft) -> list[MadeCall]:
    """The recorded tool calls of the request, in order."""
    outputs = draft.conversation.catalog.outputs
    return [
        MadeCall(name, known.output.tool, known.output.argument, known.recorded_at)
        for _, name, _ in draft.results()
        if (known := outputs.get(name)) is not None
    ]


def _read_again(draft: Draft) -> dict[str, Key]:
    """The outputs that the model has read again after a prune, by name, and which output each has shown again."""
    rereads = draft.conversation.rereads
    return {
        name: source
        for _, name, output in (draft.outputs() if rereads.found else ())
        if (source := rereads.source((output.call_id, output.sha256))) is not None
    }


def plan(draft: Prepared, limits: PruneLimits) -> CachedPrune:
    """Which further outputs to prune for this request: none unless that pays."""
    sizes, known = shown_sizes(draft), draft.conversation.state
    state = CacheState(
        draft.cold,
        known.prompt,
        known.requests,
        draft.prices,
        _surely_cached(draft, sizes),
        affordable(known.paid, known.direct_cost),
    )
    keep_tokens = round(limits.keep_tokens * (COLD_KEEP_SHARE if draft.cold else 1))
    candidates = prunables(draft, keep_tokens, sizes, other_parts(draft, limits))
    first = plan_cached_prune(candidates, state)
    if not first.chosen:
        return first
    chosen = plan_cached_prune(_unprotected(draft, candidates, limits), state)
    if all(each.placeholder_tokens == 0 for each in chosen.chosen):
        return CachedPrune((), "only thinking, which leaves together with outputs")
    return chosen


def _surely_cached(draft: Prepared, sizes: ShownSizes) -> tuple[int, ...]:
    """The tokens in front of each place where the provider finds the end of an earlier request: behind the system
    prompt, at our own breakpoint, which is not always on the last placeholder (right after a prune it is still on the
    last one of the prune before), and where requests ended in the last blocks, in which it looks for them."""
    conversation, messages = draft.conversation, draft.messages
    place = conversation.anchor if takes_anchor(draft.request) else None
    found = [0] if place is None else [0, place + 1]
    blocks, ends = 0, conversation.ends_within(draft.request)
    for at in range(len(messages), 0, -1):
        if blocks >= (draft.prices.look_back or 0):
            break
        if at in ends and at >= conversation.cold_end:
            found.append(at)
        blocks += messages[at - 1].blocks
    return tuple(sizes.before(sorted(found)))


def plan_needed(draft: Draft, limits: PruneLimits) -> CachedPrune:
    """Which outputs to prune after the provider refused the request as too long."""
    candidates = prunables(draft, limits.keep_tokens, shown_sizes(draft), other_parts(draft, limits), unread=True)
    return plan_needed_prune(_unprotected(draft, candidates, limits))


def let_clear(draft: Draft, limits: PruneLimits) -> bool:
    """Let the provider clear old results that the proxy must not change, at a cold cache; whether it clears more."""
    candidates = prunables(draft, round(limits.keep_tokens * COLD_KEEP_SHARE), shown_sizes(draft))
    return clear_more(draft, candidates, [each.key for each in _unprotected(draft, candidates, limits)])


def _unprotected(draft: Draft, candidates: Sequence[Prunable], limits: PruneLimits) -> list[Prunable]:
    calls = made_calls(draft)
    kept = protected_calls(calls, _read_again(draft)) | _kept_calls(draft.conversation)
    if limits.inputs:
        kept |= newest_inputs(calls)
    if limits.only_reads:
        kept |= {call.call_id for call in calls if not call.reads}
    return [each for each in candidates if each.key not in kept]


def _kept_calls(conversation: Conversation) -> set[str]:
    """The ids of the calls whose outputs the user or the model has pinned."""
    if not conversation.settings.pin:
        return set()
    known = sorted(conversation.catalog.outputs.items(), key=lambda each: (each[1].output.seq, each[1].output.block))
    pinned = outputs_of_pins(conversation.settings.pin, [each.output for _, each in known])
    places = {(output.seq, output.block) for output in pinned}
    return {call_id for call_id, each in known if (each.output.seq, each.output.block) in places}


@dataclass(frozen=True, slots=True)
class Taken:
    """What a plan takes out of a request: recorded outputs, other parts, and thinking, from the first to the last of
    two positions in the session. `first` is the first message that holds one of the outputs and parts."""

    outputs: Sequence[Output]
    parts: Sequence[MessagePart]
    thinking: tuple[int, int] | None
    first: int


def taken(draft: Draft, limits: PruneLimits, chosen: Sequence[Prunable]) -> Taken:
    """What a plan takes out."""
    keys, outputs = {each.key for each in chosen}, draft.conversation.catalog.outputs
    others = [each for each in other_parts(draft, limits) if each.key in keys]
    places = [place for place, name, _ in draft.results() if name in keys] + [each.place for each in others]
    return Taken(
        [outputs[each.key].output for each in chosen if each.key in outputs],
        [each.part for each in others if each.part is not None],
        span_of(draft, keys),
        min(places, default=0),
    )


def cold_now(conversation: Conversation, now: float) -> bool:
    """Whether the provider's cache of this conversation has surely expired. It is not known to be cold if no request
    of it was ever seen."""
    state = conversation.state
    return state.requests > 0 and is_cold(now, state.last_at, state.cache_seconds)
