"""Prepares a request: what is sent in place of what the client wrote, or the original if there is any doubt."""

from __future__ import annotations

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
    is_cold,
    plan_cached_prune,
    plan_needed_prune,
)
from contextstash.context.view.protected_outputs import MadeCall, protected_calls
from contextstash.context.view.thinking_blocks import preserves_thinking
from contextstash.formats.request_edits import MessageEdit, SummaryOf, edited
from contextstash.formats.request_text import RequestText, TextMessage, has_long_breakpoint
from contextstash.hosts.request_identity import announces, is_compaction
from contextstash.proxy.conversations import Conversation, tool_names
from contextstash.service.requests.proxied import Pin, ProxiedEdits
from contextstash_storage.records import Output

logger = logging.getLogger(__name__)

RETRIEVAL_TOOL = "get_archived_output"

PLACEHOLDER_TOKENS = 70
"""What a placeholder takes on average, measured on recorded sessions; the exact one is made when it is needed."""

MIN_RESULT_TOKENS = 200
"""A smaller result is not pruned: its room is that of a few placeholders, and it is often the one relevant fact."""

DEFAULT_KEEP_TOKENS = 12_000
"""Tokens of the newest tool results that stay. Replayed on recorded sessions, 3,000 saved 4 % more, but the model works
with what it has just read (bench/proxy)."""

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


def offers_retrieval(request: RequestText) -> bool:
    """Whether the model can fetch what a placeholder stands for: the tool is offered, or named for a tool search."""
    names = tool_names(request)
    if any(name.endswith(RETRIEVAL_TOOL) for name in names):
        return True
    if not any("toolsearch" in name.lower().replace("_", "") for name in names):
        return False
    return any(announces(message.native, RETRIEVAL_TOOL) for message in request.messages)


def is_understood(request: RequestText) -> bool:
    """Whether all blocks of the messages are of known types."""
    if request.format != "anthropic":
        return request.value("previous_response_id") is None and request.value("conversation") is None
    return all(_understood(message) for message in request.messages)


def _understood(message: TextMessage) -> bool:
    content = message.native.get("content")
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
    recorded = conversation.same_messages(request) if strips else 0
    found: dict[int, MessageEdit] = {}
    for place, message in enumerate(request.messages):
        texts = _pinned_texts(message, pins) if pins else {}
        stripped = False
        if place < min(recorded, len(conversation.positions)) and message.thinks:
            seq = conversation.positions[place]
            stripped = any(strip.first_seq <= seq <= strip.last_seq for strip in strips)
        if texts or stripped:
            found[place] = MessageEdit(texts, stripped)
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
    summaries = pinned_summaries(conversation, request)
    body, _ = edited(request, edits, summaries)
    saved = round((len(request.body) - len(body)) * conversation.tokens_per_byte)
    return Prepared(conversation, request, body, prices, now, max(0, saved), pruned, cold, edits)


def prunables(conversation: Conversation, request: RequestText, keep_tokens: int) -> list[Prunable]:
    """The recorded tool results that are old enough to be replaced, in order."""
    rate = conversation.tokens_per_byte
    kept = after = 0
    found: list[Prunable] = []
    for place in range(len(request.messages) - 1, -1, -1):
        message = request.messages[place]
        after += message.blocks
        for result in reversed(message.results):
            size = message.sizes.get(result.path, 0)
            if result.call_id in conversation.edits.pins:
                continue
            tokens = round(size * rate)
            kept += tokens
            if kept <= keep_tokens or tokens < MIN_RESULT_TOKENS:
                continue
            if _is_recorded(conversation, message, result.call_id, result.path):
                before = round(size_before(request, place) * rate)
                found.append(Prunable(result.call_id, before, tokens, PLACEHOLDER_TOKENS, after))
    return found[::-1]


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
    conversation: Conversation, request: RequestText, prices: CachePrices, *, cold: bool, keep_tokens: int
) -> CachedPrune:
    """Which further outputs to prune for this request: none unless that pays."""
    system = round(size_before(request, 0) * conversation.tokens_per_byte)
    state = CacheState(cold, conversation.state.prompt, conversation.state.requests, prices, system)
    candidates = prunables(conversation, request, keep_tokens)
    first = plan_cached_prune(candidates, state)
    if not first.chosen:
        return first
    return plan_cached_prune(_unprotected(conversation, request, candidates), state)


def plan_needed(conversation: Conversation, request: RequestText, keep_tokens: int) -> CachedPrune:
    """Which outputs to prune after the provider refused the request as too long."""
    candidates = prunables(conversation, request, keep_tokens)
    return plan_needed_prune(_unprotected(conversation, request, candidates))


def _unprotected(conversation: Conversation, request: RequestText, candidates: Sequence[Prunable]) -> list[Prunable]:
    kept = protected_calls(made_calls(conversation, request), pruned_at(conversation)) | conversation.edits.kept
    return [each for each in candidates if each.key not in kept]


def outputs_of(conversation: Conversation, chosen: Sequence[Prunable]) -> list[Output]:
    """The recorded outputs of a plan."""
    return [conversation.catalog.outputs[each.key].output for each in chosen]


def is_side_call(request: RequestText) -> bool:
    """Whether the client asks for its own summary: its edits stay as they are, and no new one is made for it."""
    return is_compaction(request.latest.native)


@dataclass(frozen=True, slots=True)
class ThinkingChoice:
    """Whether an edit is possible at all, and from which message of the request on thinking must be left out."""

    possible: bool
    strip_from: int | None = None


def thinking_choice(conversation: Conversation, request: RequestText, chosen: Sequence[Prunable]) -> ThinkingChoice:
    """What an edit does to later thinking. Models that check prefixes refuse thinking behind an edit. At the end of a
    tool loop it can be left out; within one the model needs it, so that the edit waits, unless the request lets the API
    drop it."""
    if not _checks_thinking(conversation, request):
        return ThinkingChoice(True)
    keys = {each.key for each in chosen}
    first = next(
        (p for p, message in enumerate(request.messages) if any(r.call_id in keys for r in message.results)), 0
    )
    later = _bound_thinking(conversation, request, min(first, _first_changed(conversation, request)))
    if not later:
        return ThinkingChoice(True)
    in_loop = bool(request.latest.results)
    return ThinkingChoice(False) if in_loop else ThinkingChoice(True, later[0])


def cold_now(conversation: Conversation, now: float) -> bool:
    """Whether the provider's cache of this conversation has surely expired. It is not known to be cold if no request
    of it was ever seen."""
    state = conversation.state
    return state.requests > 0 and is_cold(now, state.last_at, state.cache_seconds)
