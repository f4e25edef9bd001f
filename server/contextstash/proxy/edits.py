"""The edits of a session laid over one of its requests: what is sent in place of what the client wrote.

    shown = shown_edits(Draft(conversation, request))
    body = edited(request, {place: each.edit for place, each in shown.now.items()}, shown.summaries)

A placeholder stands for the first output with its id and text, wherever the client sends it. Some models count their
calls again from the start in each turn: a later output with the same id and text is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from contextstash.messages.breakpoints import content_of
from contextstash.messages.request.edits import MessageEdit, SummaryOf
from contextstash.messages.request.text import RequestText, TextMessage, ToolOutput, is_thinking
from contextstash.proxy.conversations import AskedRequest, Conversation
from contextstash.request.proxied import Key, ProxiedEdits
from contextstash.window.reasoning_binding import ReasoningBinding, reasoning_binding

SIGNATURE_BYTES = 240
"""Of a signature beside the encrypted text: measured on 1,200 blocks of recorded sessions whose text is there. Their
signatures are 4/3 of the text, by their encoding (Base64), and 230 to 260 bytes longer."""

MAX_RATIO = 2.0
"""The families' counts differ by factors of up to 1.55: more comes from something other than the texts."""

REASONING_FORMATS = {"anthropic": "anthropic", "openai": "openai-responses"}
"""The format in which each provider takes its models' reasoning back. Chat Completions takes none."""


@dataclass(frozen=True)
class Draft:
    """A request, and the conversation that it belongs to."""

    conversation: Conversation
    request: RequestText

    @property
    def messages(self) -> tuple[TextMessage, ...]:
        return self.request.messages

    @property
    def recorded(self) -> int:
        """How many messages the request begins with that are recorded, and of which it is known where."""
        return min(self.conversation.same_messages(self.request), len(self.conversation.positions))

    def with_results(self) -> Iterator[tuple[int, TextMessage]]:
        """The messages that hold results of tools, with their places."""
        return ((place, self.messages[place]) for place in self.request.places("results"))

    def outputs(self) -> Iterator[tuple[int, Key, ToolOutput]]:
        """The results that hold nothing but text, each with the place of its message; of equal ones the first."""
        seen = set[Key]()
        for place, message in self.with_results():
            for output in message.outputs:
                key = (output.call_id, output.sha256)
                if key not in seen:
                    seen.add(key)
                    yield place, key, output


@dataclass(frozen=True)
class Prepared(Draft):
    """A request ready to be sent. `cache_seconds` is how long the provider keeps its cache, `cold` says that the one of
    the former request has expired. `removed` are the tokens that the edits take out, by lever; `pruned` says how many
    outputs were pruned for this request; `changed` that it shows other edits than the former one, which were
    `former`."""

    body: bytes
    cache_seconds: int
    started: float
    removed: Mapping[str, int] = field(default_factory=dict)
    pruned: int = 0
    cold: bool = False
    changed: bool = False
    asked: AskedRequest | None = None
    former: ProxiedEdits = field(default_factory=ProxiedEdits)

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
        return replace(self, body=self.request.body, removed={}, pruned=0)


class ShownMessage(NamedTuple):
    """What the edits change in one message: `saved` are the tokens that its placeholders take less, by our count."""

    edit: MessageEdit
    saved: int = 0


UNCHANGED = ShownMessage(MessageEdit({}))

Shown = Mapping[int, ShownMessage]
"""The messages that the edits change, by their places."""


def shown_messages(draft: Draft, edits: ProxiedEdits) -> dict[int, ShownMessage]:
    """What these edits change in a request."""
    found, seen = dict[int, ShownMessage](), set[Key]()
    for place, message in draft.with_results() if edits.pins else ():
        texts, saved = {}, 0
        for result in message.results:
            key = (result.call_id, message.hashes.get(result.path, ""))
            pin = None if key in seen else edits.pins.get(key)
            seen.add(key)
            if pin is not None:
                texts[result.path], saved = pin.text, saved + pin.saved
        if texts:
            found[place] = ShownMessage(MessageEdit(texts), saved)
    for place in stripped(draft, edits):
        before = found.get(place, UNCHANGED)
        found[place] = before._replace(edit=replace(before.edit, thinking_left_out=True))
    return found


def stripped(draft: Draft, edits: ProxiedEdits) -> list[int]:
    """The messages whose thinking is left out."""
    if not edits.strips:
        return []
    recorded, positions = draft.recorded, draft.conversation.positions
    return [
        place
        for place in draft.request.places("thinks")
        if place < recorded and any(strip.first_seq <= positions[place] <= strip.last_seq for strip in edits.strips)
    ]


def thinking_size(message: TextMessage) -> int:
    """The bytes of its thinking. Newer models do not show the text: then the signature says how long it is."""
    found = 0
    for block in content_of(message.native):
        if is_thinking(block):
            sealed = len(str(block.get("signature") or block.get("data") or ""))
            found += max(len(str(block.get("thinking") or "")), 3 * max(0, sealed - SIGNATURE_BYTES) // 4)
    return found


def shown_summaries(draft: Draft, edits: ProxiedEdits) -> list[SummaryOf]:
    """The summaries that stand for messages of a request: those of which it still has all messages. Those of adjacent
    messages become one message, since two of the user may not follow each other."""
    found = list[SummaryOf]()
    if not edits.summaries:
        return []
    place_of = {seq: place for place, seq in enumerate(draft.conversation.positions[: draft.recorded])}
    places = [(place_of.get(each.first_seq), place_of.get(each.last_seq), each.text) for each in edits.summaries]
    known = [(first, last, text) for first, last, text in places if first is not None and last is not None]
    for first, last, text in sorted(known):
        if last + 1 >= len(draft.messages):
            continue
        if found and found[-1].last + 1 == first:
            former = found.pop()
            first, text = former.first, f"{former.text}\n\n{text}"
        found.append(SummaryOf(first, last, text))
    return found


@dataclass(frozen=True, slots=True)
class ShownEdits:
    """How a request is shown: with the edits in force, and with those of the former request. `first` is the first
    message that the two show differently; behind the last one if they are the same."""

    now: Shown
    summaries: Sequence[SummaryOf]
    first: int


def shown_edits(draft: Draft) -> ShownEdits:
    """The edits of a request, and where they differ from those of the former one."""
    edits, before, end = draft.conversation.edits, draft.conversation.shown, len(draft.messages)
    now, summaries = shown_messages(draft, edits), shown_summaries(draft, edits)
    if edits is before:
        return ShownEdits(now, summaries, end)
    former, known = shown_messages(draft, before), shown_summaries(draft, before)
    places = former.keys() | now.keys()
    changed = [at for at in places if former.get(at, UNCHANGED).edit != now.get(at, UNCHANGED).edit]
    changed += [summary.first for summary in summaries if summary not in known]
    return ShownEdits(now, summaries, min(changed, default=end))


def removed_tokens(draft: Draft, shown: ShownEdits) -> dict[str, int]:
    """The tokens that the edits take out, by lever: of tool outputs as they are counted from their text, since their
    bytes hold other tokens than those of the whole request, and calibrated by what the provider reports."""
    messages, rate = draft.messages, draft.conversation.tokens_per_byte
    hidden = {place for summary in shown.summaries for place in range(summary.first, summary.last + 1)}
    parts = {place: each for place, each in shown.now.items() if place not in hidden}
    thoughts = sum(thinking_size(messages[place]) for place, each in parts.items() if each.edit.thinking_left_out)
    freed = sum(len(messages[place].raw) for place in hidden) - sum(len(each.text) for each in shown.summaries)
    return {
        "tool_outputs": round(sum(each.saved for each in parts.values()) * _count_ratio(draft)) if parts else 0,
        "old_thinking": round(thoughts * rate),
        "summaries": round(freed * rate),
    }


def _count_ratio(draft: Draft) -> float:
    """How many tokens the provider counts for one of ours: by its tokens of a byte, and ours of the bytes of the tool
    outputs."""
    known = draft.conversation.catalog.outputs
    counted = [(known[key].output.tokens, output.size) for _, key, output in draft.outputs() if key in known]
    tokens, size = sum(tokens for tokens, _ in counted), sum(size for _, size in counted)
    return min(max(draft.conversation.tokens_per_byte * size / tokens, 1 / MAX_RATIO), MAX_RATIO) if tokens else 1.0


def size_of(request: RequestText) -> int:
    """Bytes of what the provider counts as the prompt: system prompt, tools, messages."""
    around = [request.fields[key] for key in ("system", "tools", "instructions") if key in request.fields]
    return sum(span.end - span.start for span in around) + request.spans[-1].end - request.spans[0].start


def binding_of(draft: Draft) -> ReasoningBinding | None:
    """How the request's model binds reasoning to what stands before it, so that this must not change any more; None if
    it does not. What was sent stays as it was sent as long as such reasoning follows it; edits wait until the client
    compacts. A request that lets the API drop what does not match is bound too: its reasoning would be lost."""
    binding = reasoning_binding(draft.conversation.state.model)
    return binding if binding is not None and REASONING_FORMATS[binding.provider] == draft.request.format else None


def may_show(draft: Draft, edits: ShownEdits) -> bool:
    """Whether the edits in force may follow those that the former request showed: not if bound reasoning follows the
    first of them that is new."""
    if edits.first == len(draft.messages) or binding_of(draft) is None:
        return True
    return not _bound_reasoning(draft, edits.now, edits.first)


def _bound_reasoning(draft: Draft, shown: Shown, first: int) -> list[int]:
    """The messages from this one on whose reasoning is shown."""
    return [
        place
        for place in draft.request.places(_is_reasoning)
        if place >= first and not (place in shown and shown[place].edit.thinking_left_out)
    ]


def _is_reasoning(message: TextMessage) -> bool:
    """Whether it holds reasoning: blocks of thinking, or an item of the Responses API."""
    return message.native.get("type") == "reasoning" or message.thinks


@dataclass(frozen=True, slots=True)
class ThinkingChoice:
    """Whether an edit is possible at all, and from which message of the request on thinking must be left out."""

    possible: bool
    strip_from: int | None = None


def thinking_choice(draft: Draft, first: int, *, needed: bool) -> ThinkingChoice:
    """What an edit of message `first` does to reasoning behind it. If that is bound, the edit waits. If it is `needed`,
    because the provider refuses the request as too long, thinking of Claude is left out at the end of a tool loop;
    within one the model needs it, and the client compacts."""
    binding = binding_of(draft)
    if binding is None:
        return ThinkingChoice(True)
    edits = shown_edits(draft)
    later = _bound_reasoning(draft, edits.now, min(first, edits.first))
    if not later:
        return ThinkingChoice(True)
    in_loop = bool(draft.request.latest.results)
    return ThinkingChoice(True, later[0]) if needed and binding.refuses and not in_loop else ThinkingChoice(False)
