"""The edits of a session laid over one of its requests: what is sent in place of what the client wrote.

    shown = shown_edits(Draft(conversation, request))
    body = edited(request, {place: each.edit for place, each in shown.now.items()}, shown.summaries)

Some models count their calls again from the start in each turn, so that the id of a call is no name: an occurrence is
named by its id and, if that was used before, by its position in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from contextstash.messages.breakpoints import content_of
from contextstash.messages.request.edits import MessageEdit, SummaryOf
from contextstash.messages.request.text import RequestText, TextMessage, ToolOutput, ToolResult, is_thinking
from contextstash.proxy.conversations import AskedRequest, Conversation
from contextstash.request.proxied import Pin, ProxiedEdits
from contextstash.window.reasoning_binding import ReasoningBinding, reasoning_binding

Naming = Callable[[int, str], str]
"""The name of an occurrence, given the place of its message in the request and the id of its call."""

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

    def results(self) -> Iterator[tuple[int, str, ToolResult]]:
        """The results of tools, each with the place of its message and its name."""
        name = self.result_names()
        for place, message in self.with_results():
            for result in message.results:
                yield place, name(place, result.call_id), result

    def outputs(self) -> Iterator[tuple[int, str, ToolOutput]]:
        """The same of those that hold nothing but text."""
        name = self.result_names()
        for place, message in self.with_results():
            for output in message.outputs:
                yield place, name(place, output.call_id), output

    def result_names(self) -> Naming:
        """The names of the results, as the session's catalog has them; of one that is not recorded yet, a new name."""
        conversation, recorded = self.conversation, self.recorded
        catalog, positions, followed = conversation.catalog, conversation.positions, conversation.followed is not None
        first, unread = self._first_results() if followed else {}, self.last_reply + 1

        def name(place: int, call_id: str) -> str:
            if place < recorded:
                return catalog.results_again.get((positions[place], call_id), call_id)
            # A client that records its session itself writes other messages than it sends, with the same ids. An id is
            # used again if a result with it stands before, and if what the model has not read yet was pruned before.
            used = call_id in catalog.reused or place > first.get(call_id, place)
            used = used or (place >= unread and call_id in conversation.edits.pins)
            return call_id if followed and not used else f"{call_id}@new {place}"

        return name

    def _first_results(self) -> dict[str, int]:
        """The first message with a result of each call id."""
        found: dict[str, int] = {}
        for place, message in self.with_results():
            for result in message.results:
                found.setdefault(result.call_id, place)
        return found

    @property
    def last_reply(self) -> int:
        """The place of the model's last message; -1 if there is none."""
        replies = self.request.places("is_models")
        return replies[-1] if replies else -1


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


@dataclass(frozen=True, slots=True)
class Inherited:
    """A result that is sent again behind an earlier message that the client changed, and how it was shown before."""

    place: int
    call_id: str
    pin: Pin


def inherited(draft: Draft, edits: ProxiedEdits) -> list[Inherited]:
    """The results that are not recorded where they stand now, but were shown as placeholders before. The newest results
    of a request are never among them: they are read for the first time."""
    conversation, first, last = draft.conversation, draft.recorded, draft.last_reply
    if not edits.pins or conversation.followed is not None or first >= last:
        return []
    found = [
        Inherited(place, result.call_id, pin)
        for place, message in draft.with_results()
        if first <= place < last
        for result in message.results
        if (pin := edits.pins.get(result.call_id)) is not None
        and result.call_id not in conversation.catalog.reused
        and message.hashes.get(result.path) == pin.sha256
    ]
    sent = [result.call_id for _, message in draft.with_results() for result in message.results] if found else []
    return [each for each in found if sent.count(each.call_id) == 1]


class ShownMessage(NamedTuple):
    """What the edits change in one message: `saved` are the tokens that its placeholders take less, by our count."""

    edit: MessageEdit
    saved: int = 0


UNCHANGED = ShownMessage(MessageEdit({}))

Shown = Mapping[int, ShownMessage]
"""The messages that the edits change, by their places."""


def shown_messages(draft: Draft, edits: ProxiedEdits) -> dict[int, ShownMessage]:
    """What these edits change in a request."""
    found: dict[int, ShownMessage] = {}
    if edits.pins:
        name = draft.result_names()
        for place, message in draft.with_results():
            shown = _with_pins(message, edits.pins, [name(place, result.call_id) for result in message.results])
            if shown.edit.texts:
                found[place] = shown
    for again in inherited(draft, edits):
        before, message = found.get(again.place, UNCHANGED), draft.messages[again.place]
        paths = [result.path for result in message.results if result.call_id == again.call_id]
        edit = replace(before.edit, texts={**before.edit.texts, **dict.fromkeys(paths, again.pin.text)})
        found[again.place] = before._replace(edit=edit, saved=before.saved + again.pin.saved)
    for place in stripped(draft, edits):
        before = found.get(place, UNCHANGED)
        found[place] = before._replace(edit=replace(before.edit, thinking_left_out=True))
    return found


def _with_pins(message: TextMessage, pins: Mapping[str, Pin], names: Sequence[str]) -> ShownMessage:
    """The placeholders of results with these names. It is the same object as long as the pins are."""
    known: tuple[Mapping[str, Pin], Sequence[str], ShownMessage] | None = message.notes.get("pinned")
    if known is None or known[0] is not pins or known[1] != names:
        shown = {
            result.path: pins[named]
            for result, named in zip(message.results, names, strict=True)
            if named in pins and message.hashes.get(result.path) == pins[named].sha256
        }
        edit = MessageEdit({path: pin.text for path, pin in shown.items()})
        found = ShownMessage(edit, sum(pin.saved for pin in shown.values()))
        known = message.notes["pinned"] = pins, names, found
    return known[2]


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
    counted = [(known[name].output.tokens, output.size) for _, name, output in draft.outputs() if name in known]
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
