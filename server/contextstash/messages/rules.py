"""The rules of the providers for a message list: which result answers which call, how a list is repaired so that it
breaks none of them, and where it may be cut. A list that breaks none goes out as it came.

One procedure of repair for all providers: each message is taken apart into the parts of it that can be sent; results
are paired with calls; parts are put in turns, each a reply, the results of its calls, and the rest; thinking that leads
to nothing is left out; parts are joined to messages again. A call without a result gets one that says that it was
interrupted; a result without its call becomes text of the user. What holds for one provider only is in `RULES` or in
its codec.

A cut `i` is between messages `i - 1` and `i`. It is safe if no rule keeps these two together. All rules of cuts take
time linear in the number of blocks, and need the messages' blocks alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, dropwhile, groupby, takewhile
from types import MappingProxyType
from typing import Literal, NamedTuple

from contextstash.messages.base import Call, Format, Part
from contextstash_storage.records import BlockType, Message, Native

Place = tuple[int, int]
"""The index of a message and the index of a part in it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a provider for a whole list; those for a single message are in its codec."""

    joins: Literal["all", "open", "none"]
    """Which neighbours of one role belong together: all; the model's while their calls have no results; none."""
    results_next: bool
    """Whether the results of a reply's calls come directly behind it, or may come anywhere later."""
    texts_beside_results: bool = False
    """Whether results that are complete may stand among the user's own parts; otherwise they come first."""
    one_call_an_id: bool = True
    """Whether a reply may not hold two calls of one id."""
    user_first: bool = False
    """Whether the list must begin with the user."""


RULES: Mapping[str, Rules] = MappingProxyType(
    {
        # "Tool result blocks must immediately follow their corresponding tool use blocks", and come first in their
        # message: https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use. Roles alternate; the
        # first is the user's: https://docs.claude.com/en/api/messages
        "anthropic": Rules("all", results_next=True, user_first=True),
        # "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
        # (the API's error): https://platform.openai.com/docs/guides/function-calling
        "openai-chat": Rules("none", results_next=True),
        # "No tool output found for function call": an output may follow later, but each call needs one.
        # https://platform.openai.com/docs/api-reference/responses/create
        "openai-responses": Rules("open", results_next=False),
        # "the number of function response parts is equal to the number of function call parts of the function call
        # turn" (the API's error). Neighbours of one role are accepted: google/adk-go#1218; texts next to responses too,
        # by Vertex AI before them only: Prism-Shadow/agenthub#189. https://ai.google.dev/gemini-api/docs/function-calling
        "gemini": Rules("open", results_next=True, texts_beside_results=True, one_call_an_id=False, user_first=True),
    }
)


class Event(NamedTuple):
    """A call, or a result. `keys` are what a result may name its call by, the best first. `turn` counts what the user
    said before it. Among open calls of one key, the newest batch is answered first, and its calls in their order."""

    place: Place
    keys: tuple[str, ...]
    is_call: bool
    turn: int
    batch: int


def calls_of_results(events: Iterable[Event], *, one_open: bool = False) -> dict[Place, Place]:
    """By the place of each result, the place of the call that it answers. Results without a call are not in it.

    A result answers the nearest open call before it, so that an id may be used again. If there is none, it answers the
    next call after it in the same turn that nothing else answers. With `one_open`, a call closes an open one of its
    key. `events` are in the order of the list."""
    open_calls: defaultdict[str, dict[Place, Event]] = defaultdict(dict)
    unanswered: dict[Place, Event] = {}
    answered: dict[Place, Place] = {}
    early: list[Event] = []
    for event in events:
        if event.is_call:
            unanswered[event.place] = event
            for key in event.keys:
                if one_open:
                    open_calls[key].clear()
                open_calls[key][event.place] = event
            continue
        call = next((_newest(open_calls[key]) for key in event.keys if open_calls[key]), None)
        if call is None:
            early.append(event)
            continue
        answered[event.place] = call.place
        del unanswered[call.place]
        for key in call.keys:
            open_calls[key].pop(call.place, None)
    if early:
        answered.update(_answers_before_calls(early, unanswered.values()))
    return answered


def _newest(calls: dict[Place, Event]) -> Event:
    """The first call of the newest batch."""
    newest = next(reversed(calls.values()))
    return [*takewhile(lambda call: call.batch == newest.batch, reversed(calls.values()))][-1]


def _answers_before_calls(early: Iterable[Event], unanswered: Iterable[Event]) -> Iterator[tuple[Place, Place]]:
    following: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for call in reversed([*unanswered]):
        following[call.keys[0], call.turn].append(call)
    for result in early:
        calls = following[result.keys[0], result.turn]
        while calls and calls[-1].place < result.place:
            calls.pop()
        if calls:
            yield result.place, calls.pop().place


MISSING_RESULT = "[No result of this tool call was recorded: it was interrupted.]"

ASSISTANT_FIRST = "(The conversation so far begins with the assistant.)"


@dataclass(slots=True, eq=False)
class _Turn:
    """A reply with its calls, and what came from the client after it. `said` says that this holds more than results of
    the calls; `answered`, that a result of them has been seen."""

    reply: list[Part] = field(default_factory=list)
    calls: dict[Place, Call] = field(default_factory=dict)
    client: list[tuple[Place, Part]] = field(default_factory=list)
    said: bool = False
    answered: bool = False


KnownParts = dict[tuple[str, int], tuple[Native, Sequence[Part]]]
"""What can be sent of the messages of a list, kept for the next one, which mostly begins with the same messages: by the
format, which a session of few messages may change, and the id of the object, with the message, so that its id becomes
no other one's."""


def render(fmt: Format, natives: Sequence[Native], known: KnownParts | None = None) -> list[Native]:
    """The messages to send: repaired and assembled, so that they break none of the provider's rules.

    Results without their call become text of the user, calls without a result get one that says that they were
    interrupted, and thinking on its own, fields that only replies have and cache breakpoints beyond the newest are left
    out. A valid list is returned unchanged, including key order. Deterministic and idempotent. The result shares values
    with `natives` but never changes them. `known` are the parts of an earlier list of the same messages.
    """
    rules, natives = RULES[fmt.name], fmt.limit_breakpoints(natives)
    known = {} if known is None else known
    places = [(fmt.name, id(native)) for native in natives]
    parts = {at: known.get(at) or (each, fmt.sent_parts(each)) for at, each in zip(places, natives, strict=True)}
    known.clear()
    known.update(parts)
    messages: Sequence[Sequence[Part]] = [found for at in places if (found := parts[at][1])]
    if rules.user_first:  # these providers take the system prompt beside the list
        messages = list(dropwhile(lambda parts: parts[0].instructs, messages))
    ordered = _in_order(fmt, rules, messages)
    messages = _arranged(fmt, rules, messages) if ordered is None else ordered
    sent = fmt.joined(messages)
    if rules.user_first and messages and messages[0][0].by_model and not messages[0][0].begins:
        sent.insert(0, fmt.user_message(ASSISTANT_FIRST))
    return sent


def _in_order(fmt: Format, rules: Rules, messages: Sequence[Sequence[Part]]) -> Sequence[Sequence[Part]] | None:
    """The parts in the messages in which they are sent, of the usual list: each result is behind its call, and nothing
    is open. None for others, although some of them break no rule: that takes ten times as long, and changes nothing."""
    runs: list[list[Part]] = []
    pending: dict[str | int, Call] = {}
    previous: Part | None = None
    reply: str | None = None
    for parts in messages:
        first = parts[0]
        goes_on = rules.joins == "all" and previous is not None and previous.by_model == first.by_model
        goes_on = goes_on and not first.instructs
        if first.by_model:
            if rules.results_next and not goes_on and (pending or (reply is not None and first.reply == reply)):
                return None
            reply = first.reply
        elif previous and (previous.thinks or previous.instructs or (previous.by_model and first.instructs)):
            return None
        for part in parts:
            if (part.answers or part.calls or pending) and not _is_paired(fmt, rules, part, pending):
                return None
        if pending and not (first.by_model or rules.one_call_an_id):
            return None
        previous = parts[-1]
        if goes_on:
            runs[-1] += parts
        elif rules.joins == "all":
            runs.append([*parts])
    is_open = previous is None or pending or previous.thinks
    return None if is_open or _unanswered(chain.from_iterable(messages)) else runs or messages


def _is_paired(fmt: Format, rules: Rules, part: Part, pending: dict[str | int, Call]) -> bool:
    """Whether a part answers a pending call as it is, if it is a result, and its own calls have other ids. If an id may
    stand for several calls, their results have to be in their order."""
    if part.answers:
        key = part.answers[0] if rules.one_call_an_id else next(iter(pending), 0)
        call = pending.pop(key, None)
        if call is None or part.answers[0] not in call.keys or fmt.fitted(part.native, call) is not part.native:
            return False
    elif pending and rules.results_next and not part.by_model:
        return False
    for call in part.calls:
        key = call.keys[0] if rules.one_call_an_id else len(pending)
        if key in pending:
            return False
        pending[key] = call
    return True


def _arranged(fmt: Format, rules: Rules, messages: Sequence[Sequence[Part]]) -> list[Sequence[Part]]:
    """The parts in the messages in which they are sent, by the rules."""
    repair = _Repair(fmt, rules, messages)
    groups = enumerate(group for turn in repair.turns() for group in repair.arranged(turn))
    placed = [(number, part) for number, group in groups for part in group]
    left_out = _unanswered(part for _, part in placed)
    placed = _without_lone_thinking([each for at, each in enumerate(placed) if at not in left_out])
    grouped = groupby(placed, key=lambda each: each[1].by_model if rules.joins == "all" else each[0])
    messages = [[part for _, part in group] for _, group in grouped]
    return list(chain.from_iterable(map(_instructions_apart, messages))) if rules.joins == "all" else messages


def _instructions_apart(parts: Sequence[Part]) -> list[list[Part]]:
    """A message, and behind it what system messages said: Anthropic's newer models take one directly behind the user's.
    https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages. If the user said nothing
    there, it is said in the user's role."""
    said, told = ([part for part in parts if part.instructs is instructs] for instructs in (False, True))
    return [said, told] if said and told else [said or [replace(part, instructs=False) for part in told]]


class _Repair:
    """The parts of a list by message, and the pairs of calls and results by their places. A call's place is its number
    among those of its message, a result's that of its part."""

    def __init__(self, fmt: Format, rules: Rules, messages: Sequence[Sequence[Part]]) -> None:
        self._fmt, self._rules, self._messages = fmt, rules, messages
        self._made: dict[Place, Call] = {}
        self._call_of = calls_of_results(self._events(), one_open=not rules.results_next)
        self._result_of = {call: result for result, call in self._call_of.items()}
        self._turn_of: dict[Place, _Turn] = {}

    def _events(self) -> Iterator[Event]:
        turn = run = 0
        was_models = False
        for at, parts in enumerate(self._messages):
            is_models = parts[0].by_model
            run += not (is_models and was_models)
            was_models = is_models
            turn += not is_models and not all(part.answers for part in parts)
            named = turn if self._rules.joins == "all" else at, at if self._rules.one_call_an_id else run
            number = 0
            for index, part in enumerate(parts):
                if part.answers:
                    yield Event((at, index), part.answers, False, *named)
                for call in part.calls:
                    self._made[at, number] = call
                    yield Event((at, number), call.keys, True, *named)
                    number += 1

    def turns(self) -> list[_Turn]:
        """The list in turns."""
        turns = [_Turn()]
        for at, parts in enumerate(self._messages):
            if not parts[0].by_model:
                self._add_client(turns[-1], at, parts)
                continue
            if self._begins(turns[-1], parts):
                turns.append(_Turn())
            self._add_reply(turns[-1], at, parts)
        return turns

    def _begins(self, turn: _Turn, parts: Sequence[Part]) -> bool:
        """Whether a message of the model begins a turn, or belongs to the reply before it: hosts write results as soon
        as a tool ends, between the parts of one reply."""
        if turn.said or self._rules.joins == "none":
            return True
        if not turn.calls:
            return bool(turn.reply) and self._rules.joins != "all"
        is_same_reply = parts[0].reply is not None and parts[0].reply == turn.reply[-1].reply
        # Of a call without a result, an earlier request may have ended with the one that stands for it.
        interrupted = self._rules.joins == "all" and any(call not in self._result_of for call in turn.calls)
        if (turn.answered or interrupted) and not is_same_reply:
            return True
        made = {call.keys[0] for call in turn.calls.values()} if self._rules.one_call_an_id else ()
        return any(call.keys[0] in made for part in parts for call in part.calls)

    def _add_reply(self, turn: _Turn, at: int, parts: Sequence[Part]) -> None:
        number = 0
        for part in parts:
            places = [(at, number + offset) for offset in range(len(part.calls))]
            number += len(places)
            if not all(place in self._result_of or self._fmt.missing(self._made[place]) for place in places):
                continue
            turn.reply.append(part)
            for place, call in zip(places, part.calls, strict=True):
                turn.calls[place] = call
                turn.answered |= self._result_of.get(place, place) < place
                self._turn_of[place] = turn

    def _add_client(self, turn: _Turn, at: int, parts: Sequence[Part]) -> None:
        for index, part in enumerate(parts):
            place = at, index
            call = self._call_of.get(place) if part.answers else None
            if call is None:
                orphans = self._fmt.orphan(part) if part.answers else ()
                shown = [Part(native, False, part.source) for native in orphans] if part.answers else [part]
                turn.client += [(place, each) for each in shown]
                turn.said |= bool(shown)
                continue
            home = self._turn_of.get(call)
            if home is not None:
                home.answered = True
            if home is turn or not self._rules.results_next:
                turn.client.append((place, self._fitted(place)))

    def _fitted(self, result: Place) -> Part:
        part = self._messages[result[0]][result[1]]
        native = self._fmt.fitted(part.native, self._made[self._call_of[result]])
        return part if native is part.native else replace(part, native=native)

    def arranged(self, turn: _Turn) -> Iterator[list[Part]]:
        """The parts of a turn in the order and in the messages in which they are sent."""
        yield turn.reply
        if not self._rules.results_next:
            yield [*self._missing(turn).values(), *(part for _, part in turn.client)]
            return
        rest = turn.client
        if not (self._rules.texts_beside_results and self._is_in_place(turn)):
            yield self._results(turn)
            rest = [(place, part) for place, part in rest if place not in self._call_of]
        for _, group in groupby(rest, key=lambda each: each[0][0]):
            yield [part for _, part in group]

    def _is_in_place(self, turn: _Turn) -> bool:
        """Whether the client's first message holds a result for each call, and no others."""
        results = [self._result_of.get(call) for call in turn.calls]
        if not results or not turn.client:
            return not results
        at = turn.client[0][0][0]
        there = [(at, index) for index, part in enumerate(self._messages[at]) if part.answers]
        ordered = any(call.by_order for call in turn.calls.values())
        return results == there if ordered else set(results) == set(there) and len(results) == len(there)

    def _results(self, turn: _Turn) -> list[Part]:
        """The results as they came, then those that are missing; in the order of the calls if only that pairs them."""
        missing = self._missing(turn)
        calls = list(turn.calls)
        if not any(call.by_order for call in turn.calls.values()):
            calls.sort(key=lambda call: (call not in self._result_of, self._result_of.get(call, call)))
        return [missing[call] if call in missing else self._fitted(self._result_of[call]) for call in calls]

    def _missing(self, turn: _Turn) -> dict[Place, Part]:
        """The results that stand for those of interrupted calls, by the places of these."""
        open_calls = {place: call for place, call in turn.calls.items() if place not in self._result_of}
        return {place: Part(self._fmt.missing(call) or {}, by_model=False) for place, call in open_calls.items()}


def _unanswered(parts: Iterable[Part]) -> set[int]:
    """The places of calls of the provider's own tools that have no result, and of results without a call. A call may be
    open in the last message (the provider paused there), or while it waits for a client's tool that it called."""
    pending: dict[str, int] = {}
    lone: set[int] = set()
    callers: set[str | None] = set()
    last = -1
    for place, part in enumerate(parts):
        callers.add(part.caller)
        if not part.by_model:
            last = place
        elif part.asks:
            if part.asks in pending:  # recorded twice
                lone.add(pending[part.asks])
            pending[part.asks] = place
        elif part.gets and pending.pop(part.gets, None) is None:
            lone.add(place)
    return lone.union(place for call, place in pending.items() if call not in callers and place < last)


def _without_lone_thinking(placed: Sequence[tuple[int, Part]]) -> list[tuple[int, Part]]:
    """The parts without thinking that nothing of the model follows."""
    kept = []
    followed = False
    for number, part in reversed(placed):
        if not part.thinks:
            followed = part.by_model
        if followed or not part.thinks:
            kept.append((number, part))
    kept.reverse()
    return kept


# Where a list may be cut. Each rule gives the first and the last of some messages that no cut may part; -1 and the
# list's length stand for what comes before and after it.


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Where the list may be cut so that both parts are as valid as the whole, in ascending order; includes 0 and the
    length if they are safe. A part that begins with the assistant needs a user message (a summary) before it."""
    answered = [_answered_ids(message) for message in messages]
    replies = _reply_numbers(messages, answered)
    changes = [0] * (len(messages) + 2)
    rules = (_whole_replies(messages, answered, replies), _open_loop(messages, answered, replies))
    for first, last in chain.from_iterable(rules):
        changes[first + 1] += 1
        changes[last + 1] -= 1
    return [cut for cut, covered in enumerate(accumulate(changes[:-1])) if not covered]


def answers_calls(message: Message) -> bool:
    """Whether the message answers a call of an earlier message. A reply with results of its provider's own tools does
    not."""
    return message.role != "assistant" and bool(_answered_ids(message))


def _answered_ids(message: Message) -> list[str]:
    """The ids of the calls that a message answers, each once. Every block with a call id that is not a call is part of
    an answer: a result, an image nested in it, a screenshot, a result of a provider's own tool."""
    ids = [block.call_id for block in message.blocks if block.call_id and block.type != "tool_call"]
    return list(dict.fromkeys(ids)) if len(ids) > 1 else ids


def _has(message: Message, kind: BlockType) -> bool:
    """Whether it has such a block. A call of a provider's own tool whose result is in the same block has no id, and
    needs no answer."""
    return any(block.type == kind and (block.call_id is not None or kind != "tool_call") for block in message.blocks)


def _reply_numbers(messages: Sequence[Message], answered: Sequence[Sequence[str]]) -> list[int]:
    """A number for each message, the same for all messages of one reply and for the answers to its calls.

    An assistant message continues the reply directly before it unless their reply ids differ. After answers to calls
    it continues the reply only if the ids are equal: hosts run calls while a reply is still streaming.
    """
    numbers: list[int] = []
    number = 0
    group: str | None = None
    for place, message in enumerate(messages):
        own, before = message.group, place - 1
        if message.role != "assistant":
            continues = bool(answered[place])
        elif messages[before].role == "assistant":
            continues = own is None or group is None or own == group
        else:
            continues = bool(answered[before]) and group is not None and own == group
        number += place > 0 and not continues
        group = own if message.role == "assistant" else group
        numbers.append(number)
    return numbers


def _whole_replies(
    messages: Sequence[Message], answered: Sequence[Sequence[str]], replies: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Calls and their results, whichever was recorded first; all messages of one reply and the answers to its calls; an
    answer whose call is not there, and what is before it; a message of thinking alone, and the next one if it is the
    assistant's or does not exist yet. The results of calls in the last reply may still come."""
    events = list(_events_of_blocks(messages, answered))
    pairs = calls_of_results(events)
    for result, call in pairs.items():
        yield min(call[0], result[0]), max(call[0], result[0])
    for place, message in enumerate(messages):
        if replies[place] == replies[place - 1] if place else answers_calls(message):
            yield place - 1, place
        is_followed = place + 1 == len(messages) or messages[place + 1].role == "assistant"
        if is_followed and message.blocks and all(block.type == "thinking" for block in message.blocks):
            yield place, place + 1
    unanswered = {event.place for event in events if event.is_call} - set(pairs.values())
    if any(replies[place] == replies[-1] for place, _ in unanswered):
        yield len(messages) - 1, len(messages)


def _events_of_blocks(messages: Sequence[Message], answered: Sequence[Sequence[str]]) -> Iterator[Event]:
    """Calls before results within a message: a provider's own tool may be called and answered in one reply."""
    turn = 0
    for at, message in enumerate(messages):
        turn += message.role == "user" and not answered[at]
        for index, block in enumerate(message.blocks):
            if block.type == "tool_call" and block.call_id is not None:
                yield Event((at, index), (block.call_id,), is_call=True, turn=turn, batch=at)
        for index, call_id in enumerate(answered[at], len(message.blocks)):
            yield Event((at, index), (call_id,), is_call=False, turn=turn, batch=at)


def _open_loop(
    messages: Sequence[Message], answered: Sequence[Sequence[str]], replies: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """In the tool loop at the end of the list, each round without thinking of its own, and what is before it.

    If a request sets a thinking budget, Anthropic requires that the reply which such a loop continues begins with
    thinking, before its first tool call (guide to extended thinking). Models with adaptive thinking have no such rule,
    and their loops may outgrow the window and must stay cuttable. So cuts are forbidden only if the list looks like one
    with a budget: at least two loops began with thinking, and none without. If results are messages of role `tool`, the
    provider is not Anthropic.
    """
    if not messages or any(message.role == "tool" for message in messages):
        return
    if not (answers_calls(messages[-1]) or _has(messages[-1], "tool_call")):
        return
    thinks = {reply for reply, message in zip(replies, messages, strict=True) if _has(message, "thinking")}
    calls = {reply for reply, message in zip(replies, messages, strict=True) if _has(message, "tool_call")}
    loops: list[list[int]] = [[]]  # of each, the places where its replies begin; the first list is of what precedes all
    for place, message in enumerate(messages):
        if message.role == "user" and not answered[place]:
            loops.append([])
        elif message.role == "assistant" and replies[place] != replies[place - 1]:
            loops[-1].append(place)
    begun = [replies[loop[0]] in thinks for loop in loops[1:] if loop and replies[loop[0]] in calls]
    if len(begun) > 1 and all(begun):
        yield from ((place - 1, place) for place in loops[-1][1:] if replies[place] not in thinks)
