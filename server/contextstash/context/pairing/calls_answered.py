"""Forbids cuts between a tool call and its result, and between parallel calls and any of their results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from contextstash.context.pairing.blocks import answered_ids, is_open_call
from contextstash.context.pairing.replies_whole import reply_numbers
from contextstash_storage.records import Message


def cuts_inside_tool_calls(messages: Sequence[Message]) -> set[int]:
    """The cuts between a call and its result.

    A result answers the nearest open call with its id before it, so that an id may be used again; if there is none,
    the next call after it that nothing else answers. A call without a result is interrupted by the next message that
    neither answers a call nor continues the reply; until then, and so at the end of the list, its result may still
    come.
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
    open_calls: dict[str, list[int]] = {}
    orphans: dict[str, list[int]] = {}
    for place, message in enumerate(messages):
        for block in message.blocks:
            if is_open_call(block):
                open_calls.setdefault(block.call_id or "", []).append(place)
        for call_id in answered_ids(message):
            if open_calls.get(call_id):
                yield open_calls[call_id].pop(), place
            else:
                orphans.setdefault(call_id, []).append(place)
    yield from _early_results(messages, open_calls, orphans)
    unanswered = sorted(place for places in open_calls.values() for place in places)
    yield from _interrupted(messages, unanswered)


def _early_results(
    messages: Sequence[Message], open_calls: dict[str, list[int]], orphans: dict[str, list[int]]
) -> Iterator[tuple[int, int]]:
    """Spans of results that come before their call in the same user turn: Claude Code writes a result as soon as the
    tool ends, but the reply as it streams in. Removes their calls from `open_calls`."""
    if not orphans:
        return
    turns = list(accumulate(message.role == "user" and not answered_ids(message) for message in messages))
    for call_id, results in orphans.items():
        calls = open_calls.get(call_id, [])
        for result in results:
            next_call = bisect_right(calls, result)
            if next_call < len(calls) and turns[calls[next_call]] == turns[result]:
                yield result, calls.pop(next_call)


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
