"""Where a message list may be cut: a function for each rule of the providers returns the cuts that it forbids.

Cut `i` is between messages `i - 1` and `i`. A cut that no rule forbids is safe. Each function takes time linear in the
number of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contextstash.messages.rules import Event, calls_of_results
from contextstash_storage.records import Block, Message


def is_open_call(block: Block) -> bool:
    """Whether this block is a tool call that needs an answer. A call of a provider's own tool whose result is in the
    same block has no id."""
    return block.type == "tool_call" and block.call_id is not None


def answered_ids(message: Message) -> list[str]:
    """The ids of the calls that a message answers, each once. Every block with a call id that is not a call is part of
    an answer: a result, an image nested in it, a screenshot, a result of a provider's own tool."""
    ids = [block.call_id for block in message.blocks if block.call_id and block.type != "tool_call"]
    return list(dict.fromkeys(ids))


def answers_calls(message: Message) -> bool:
    """Whether the message answers a call of an earlier message. A reply with results of its provider's own tools does
    not."""
    return message.role != "assistant" and bool(answered_ids(message))


def cuts_inside_replies(messages: Sequence[Message]) -> set[int]:
    """The cuts before an assistant message that continues a reply. This also keeps together parallel calls that were
    recorded one by one."""
    numbers = reply_numbers(messages)
    return {
        place
        for place in range(1, len(messages))
        if messages[place].role == "assistant" and numbers[place] == numbers[place - 1]
    }


def reply_numbers(messages: Sequence[Message]) -> list[int]:
    """A number for each message, the same for all messages of one reply and for the answers to its calls.

    An assistant message continues the reply directly before it unless their reply ids differ. After answers to calls
    it continues the reply only if the ids are equal: hosts run calls while a reply is still streaming.
    """
    numbers: list[int] = []
    number = 0
    group: str | None = None
    for place, message in enumerate(messages):
        if place and not _continues(message, messages[place - 1], group):
            number += 1
        if message.role == "assistant":
            group = message.group
        numbers.append(number)
    return numbers


def _continues(message: Message, previous: Message, group: str | None) -> bool:
    """Whether the message belongs to the reply before it, whose id is `group`."""
    if message.role != "assistant":
        return answers_calls(message)
    if previous.role == "assistant":
        return message.group is None or group is None or message.group == group
    return answers_calls(previous) and group is not None and message.group == group


def cuts_inside_tool_calls(messages: Sequence[Message]) -> set[int]:
    """The cuts between a call and its result.

    A call without a result is interrupted by the next message that neither answers a call nor continues the reply;
    until then, and so at the end of the list, its result may still come.
    """
    covered = [0] * (len(messages) + 2)
    for first, last in _spans(messages):
        covered[first + 1] += 1
        covered[last + 1] -= 1
    forbidden = set()
    depth = 0
    for cut in range(len(messages) + 1):
        depth += covered[cut]
        if depth:
            forbidden.add(cut)
    return forbidden


def _spans(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """For each pair in different messages (index of the call, index of its result), or the reverse if the result was
    recorded first. The span of an open call ends where it is interrupted, or past the end of the list."""
    events = list(_events(messages))
    answered = calls_of_results(events)
    for result, call in answered.items():
        first, last = sorted((call[0], result[0]))
        yield first, last
    calls = {event.place for event in events if event.is_call}
    yield from _interrupted(messages, sorted(place for place, _ in calls - set(answered.values())))


def _events(messages: Sequence[Message]) -> Iterator[Event]:
    """Calls before results within a message: a provider's own tool may be called and answered in one reply."""
    turn = 0
    for at, message in enumerate(messages):
        answers = answered_ids(message)
        turn += message.role == "user" and not answers
        for index, block in enumerate(message.blocks):
            if is_open_call(block):
                yield Event((at, index), (block.call_id or "",), is_call=True, turn=turn, batch=at)
        for index, call_id in enumerate(answers):
            yield Event((at, len(message.blocks) + index), (call_id,), is_call=False, turn=turn, batch=at)


def _interrupted(messages: Sequence[Message], unanswered: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Spans of calls without a result, up to the last message before the one that interrupts them."""
    if not unanswered:
        return
    ends = _interruptions(messages)
    for place in unanswered:
        end = ends[place]
        yield place, len(messages) if end == len(messages) else end - 1


def _interruptions(messages: Sequence[Message]) -> list[int]:
    """For each message, the index of the next one that neither answers a call nor continues the same reply."""
    numbers = reply_numbers(messages)
    ends = [len(messages)] * len(messages)
    for place in range(len(messages) - 2, -1, -1):
        following = place + 1
        ends[place] = ends[following] if numbers[following] == numbers[place] else following
    return ends


def cuts_inside_open_loops(messages: Sequence[Message]) -> set[int]:
    """The cuts in the tool loop at the end of the list before a round without thinking of its own.

    If a request sets a thinking budget, Anthropic requires that the reply which such a loop continues begins with
    thinking, before its first tool call (guide to extended thinking). Models with adaptive thinking have no such rule,
    and their loops may outgrow the window and must stay cuttable. So cuts are forbidden only if the list looks like one
    with a budget: at least two loops began with thinking, and none without. If results are messages of role `tool`, the
    provider is not Anthropic.
    """
    if not messages or not _is_open(messages[-1]) or any(message.role == "tool" for message in messages):
        return set()
    loops = _loops(messages)
    thoughtful = [rounds[0].thinks for rounds in loops if rounds and rounds[0].calls]
    if len(thoughtful) < 2 or not all(thoughtful):
        return set()
    return {following.place for following in loops[-1][1:] if not following.thinks}


@dataclass
class _Round:
    """One reply of the model in a tool loop."""

    place: int
    thinks: bool = False
    calls: bool = False


def _loops(messages: Sequence[Message]) -> list[list[_Round]]:
    """The rounds after each message of a person. Messages before the first of these belong to a loop whose start is
    unknown and are left out."""
    loops: list[list[_Round]] = []
    number = -1
    for place, (message, reply) in enumerate(zip(messages, reply_numbers(messages), strict=True)):
        if message.role == "user" and not answers_calls(message):
            loops.append([])
        elif message.role == "assistant" and loops:
            if reply != number or not loops[-1]:
                loops[-1].append(_Round(place))
            number = reply
            current = loops[-1][-1]
            current.thinks |= any(block.type == "thinking" for block in message.blocks)
            current.calls |= any(is_open_call(block) for block in message.blocks)
    return loops


def _is_open(last: Message) -> bool:
    """Whether the model has the next turn after this last message."""
    return answers_calls(last) or any(is_open_call(block) for block in last.blocks)


def cuts_before_results(messages: Sequence[Message]) -> set[int]:
    """The cuts directly before a message that answers a call of an earlier message, even if that is not in the list."""
    return {place for place, message in enumerate(messages) if _is_answer(message)}


def _is_answer(message: Message) -> bool:
    called = {block.call_id for block in message.blocks if block.type == "tool_call"}
    return any(call_id not in called for call_id in answered_ids(message))


def cuts_after_lone_thinking(messages: Sequence[Message]) -> set[int]:
    """The cuts after a message of thinking alone, if the next message is the assistant's or does not exist yet."""
    return {
        place + 1
        for place, message in enumerate(messages)
        if _is_lone_thinking(message) and (place + 1 == len(messages) or messages[place + 1].role == "assistant")
    }


def _is_lone_thinking(message: Message) -> bool:
    return bool(message.blocks) and all(block.type == "thinking" for block in message.blocks)


RULES = (
    cuts_inside_tool_calls,
    cuts_before_results,
    cuts_after_lone_thinking,
    cuts_inside_replies,
    cuts_inside_open_loops,
)


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Where the list may be cut so that both parts are as valid as the whole, in ascending order; includes 0 and the
    length if they are safe. A part that begins with the assistant needs a user message (a summary) before it."""
    forbidden = set().union(*(rule(messages) for rule in RULES))
    return [cut for cut in range(len(messages) + 1) if cut not in forbidden]
