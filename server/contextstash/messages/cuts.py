"""Where a message list may be cut: each rule of the providers returns the messages that it keeps together.

A cut `i` is between messages `i - 1` and `i`. It is safe if no rule keeps these two together. All rules take time
linear in the number of blocks, and need the messages' blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from contextstash.messages.repair import Event, calls_of_results
from contextstash_storage.records import Block, Message

Span = tuple[int, int]
"""The first and the last of some messages between which there is no cut. -1 and the list's length stand for what comes
before and after it."""


def safe_cuts(messages: Sequence[Message]) -> list[int]:
    """Where the list may be cut so that both parts are as valid as the whole, in ascending order; includes 0 and the
    length if they are safe. A part that begins with the assistant needs a user message (a summary) before it."""
    answered = [_answered_ids(message) for message in messages]
    replies = _reply_numbers(messages, answered)
    changes = [0] * (len(messages) + 2)
    rules = (
        _calls_with_results(messages, answered, replies),
        _answers(messages, answered),
        _lone_thinking(messages),
        _replies(messages, replies),
        _open_loop(messages, replies),
    )
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


def _is_open_call(block: Block) -> bool:
    """Whether this block is a tool call that needs an answer. A call of a provider's own tool whose result is in the
    same block has no id."""
    return block.type == "tool_call" and block.call_id is not None


def _reply_numbers(messages: Sequence[Message], answered: Sequence[Sequence[str]]) -> list[int]:
    """A number for each message, the same for all messages of one reply and for the answers to its calls.

    An assistant message continues the reply directly before it unless their reply ids differ. After answers to calls
    it continues the reply only if the ids are equal: hosts run calls while a reply is still streaming.
    """
    numbers: list[int] = []
    number = 0
    group: str | None = None
    was_models, was_answer = False, False
    for place, message in enumerate(messages):
        is_models, own = message.role == "assistant", message.group
        if not is_models:
            continues = bool(answered[place])
        elif was_models:
            continues = own is None or group is None or own == group
        else:
            continues = was_answer and group is not None and own == group
        number += place > 0 and not continues
        group = own if is_models else group
        was_models, was_answer = is_models, not is_models and bool(answered[place])
        numbers.append(number)
    return numbers


def _replies(messages: Sequence[Message], replies: Sequence[int]) -> Iterator[Span]:
    """The messages of one reply, so also parallel calls that were recorded one by one."""
    for place in range(1, len(messages)):
        if messages[place].role == "assistant" and replies[place] == replies[place - 1]:
            yield place - 1, place


def _calls_with_results(
    messages: Sequence[Message], answered: Sequence[Sequence[str]], replies: Sequence[int]
) -> Iterator[Span]:
    """Calls and their results, whichever was recorded first.

    A call without a result is interrupted by the next message that neither answers a call nor continues the reply;
    until then, and so at the end of the list, its result may still come.
    """
    events = list(_events(messages, answered))
    pairs = calls_of_results(events)
    for result, call in pairs.items():
        yield min(call[0], result[0]), max(call[0], result[0])
    ends = [len(messages)] * len(messages)
    for place in range(len(messages) - 2, -1, -1):
        ends[place] = ends[place + 1] if replies[place + 1] == replies[place] else place
    for place, _ in {event.place for event in events if event.is_call} - set(pairs.values()):
        yield place, ends[place]


def _events(messages: Sequence[Message], answered: Sequence[Sequence[str]]) -> Iterator[Event]:
    """Calls before results within a message: a provider's own tool may be called and answered in one reply."""
    turn = 0
    for at, message in enumerate(messages):
        answers = answered[at]
        turn += message.role == "user" and not answers
        for index, block in enumerate(message.blocks):
            if _is_open_call(block):
                yield Event((at, index), (block.call_id or "",), is_call=True, turn=turn, batch=at)
        for index, call_id in enumerate(answers, len(message.blocks)):
            yield Event((at, index), (call_id,), is_call=False, turn=turn, batch=at)


def _answers(messages: Sequence[Message], answered: Sequence[Sequence[str]]) -> Iterator[Span]:
    """Messages that answer a call of an earlier message, and what is before them, even if the call is not there."""
    for place, answers in enumerate(answered):
        if answers and not {each.call_id for each in messages[place].blocks if each.type == "tool_call"} >= {*answers}:
            yield place - 1, place


def _lone_thinking(messages: Sequence[Message]) -> Iterator[Span]:
    """A message of thinking alone, and the next one if it is the assistant's or does not exist yet."""
    for place, message in enumerate(messages):
        blocks = message.blocks
        if not blocks or blocks[0].type != "thinking":
            continue
        is_followed = place + 1 == len(messages) or messages[place + 1].role == "assistant"
        if is_followed and all(block.type == "thinking" for block in blocks):
            yield place, place + 1


def _open_loop(messages: Sequence[Message], replies: Sequence[int]) -> Iterator[Span]:
    """In the tool loop at the end of the list, each round without thinking of its own, and what is before it.

    If a request sets a thinking budget, Anthropic requires that the reply which such a loop continues begins with
    thinking, before its first tool call (guide to extended thinking). Models with adaptive thinking have no such rule,
    and their loops may outgrow the window and must stay cuttable. So cuts are forbidden only if the list looks like one
    with a budget: at least two loops began with thinking, and none without. If results are messages of role `tool`, the
    provider is not Anthropic.
    """
    if not messages or any(message.role == "tool" for message in messages):
        return
    if not (answers_calls(messages[-1]) or any(map(_is_open_call, messages[-1].blocks))):
        return
    thinks: set[int] = set()
    calls: set[int] = set()
    loops: list[list[int]] = []
    for place, message in enumerate(messages):
        reply = replies[place]
        if message.role == "user" and not answers_calls(message):
            loops.append([])
        elif message.role == "assistant":
            thinks |= {reply for block in message.blocks if block.type == "thinking"}
            calls |= {reply for block in message.blocks if _is_open_call(block)}
            if loops and (not loops[-1] or replies[loops[-1][-1]] != reply):
                loops[-1].append(place)  # where the reply begins
    begun = [replies[loop[0]] in thinks for loop in loops if loop and replies[loop[0]] in calls]
    if len(begun) > 1 and all(begun):
        yield from ((place - 1, place) for place in loops[-1][1:] if replies[place] not in thinks)
