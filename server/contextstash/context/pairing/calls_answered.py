"""A tool call and its result stay on one side of a cut, and parallel calls with all their results."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from contextstash.context.pairing.blocks import answered_ids, is_open_call
from contextstash.context.pairing.replies_whole import reply_numbers
from contextstash_storage.records import Message


def cuts_inside_tool_calls(messages: Sequence[Message]) -> set[int]:
    """The cuts between a call and its result.

    A result answers the nearest call of its id before it that is still open, so ids may be used again; if
    there is none, one after it that nothing else answers. A call that is never answered counts as interrupted
    from the next message on that neither answers a call nor continues the reply; until then, and so at the
    end of the list, its result may still come.
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
    """(place of the call, place of its result) of each pair in different messages, or the reverse of a result
    recorded early; an open call's span ends where it is interrupted, or past the end of the list."""
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
    """Spans of results that stand before their call in one turn of the user's (Claude Code writes a result as
    soon as the tool ends, and the reply as it streams in). Their calls are taken out of `open_calls`."""
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
    """Spans of calls without a result: up to the last message before the one that interrupts them."""
    if not unanswered:
        return
    ends = _interruptions(messages)
    for place in unanswered:
        end = ends[place]
        yield place, len(messages) if end == len(messages) else end - 1


def _interruptions(messages: Sequence[Message]) -> list[int]:
    """For each message the next one after it that neither answers a call nor continues the same reply."""
    numbers = reply_numbers(messages)
    ends = [len(messages)] * len(messages)
    for place in range(len(messages) - 2, -1, -1):
        following = place + 1
        ends[place] = ends[following] if numbers[following] == numbers[place] else following
    return ends
