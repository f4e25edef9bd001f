"""Fits a view to the budget of one request without changing the session: what is shortened or left out, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.context.view.compaction_plan import cuts_of, leading_system
from contextstash.context.view.view import Entry, output_tokens, total_tokens
from contextstash_storage.records import ArchiveEdit, Message, Output, Replacement

PLACEHOLDER_TOKENS = 60
"""About how many tokens a placeholder takes; the exact number is counted from its text. Ours take about 50."""

MIN_CUT_TOKENS = 200
"""An output that must be cut for the view to fit keeps at least this many tokens; if that is too many, it is archived.
A guess: a few lines of its head and tail, and the notice between them."""

NOTICE_TOKENS = 80
"""What the notice about messages left out takes at most; a guess, the caller passes the exact number."""

Shorten = Callable[[Message, Output, int | None], Replacement]
"""`shorten(message, output, tokens)`: the output as a placeholder if `tokens` is None, else cut to that many tokens."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A view for one request. `dropped` are the entries left out, which follow the system messages; `kept` are all
    others. `excess` is by how many tokens the view still exceeds the budget, 0 if it fits."""

    kept: tuple[Entry, ...]
    dropped: tuple[Entry, ...]
    shortened: int
    excess: int


def fit(
    entries: Sequence[Entry],
    outputs: Mapping[tuple[int, int], Output],
    budget: int,
    shorten: Shorten,
    *,
    notice_tokens: int = NOTICE_TOKENS,
    archive: bool = True,
    keep_messages: int = 0,
) -> Fitted:
    """Shortens a view to `budget` tokens. First tool outputs become placeholders, the oldest first, if `archive`. Then
    the oldest messages are left out, up to a position that every pairing rule allows, but never the `keep_messages`
    newest. Last, large outputs in what remains are cut, also the newest and those that are cut already, and if that is
    not enough, they become placeholders too."""
    current = list(entries)
    excess = total_tokens(current) - budget
    if excess <= 0:
        return Fitted(tuple(current), (), 0, 0)
    tail = _tail_start(current) if archive else 0
    current, archived = _shorten_outputs(current, outputs, range(tail), excess, shorten, None)
    excess = total_tokens(current) - budget
    dropped: tuple[Entry, ...] = ()
    if excess > 0:
        current, dropped = _drop_oldest(current, excess + notice_tokens, keep_messages)
        excess = total_tokens(current) - budget + (notice_tokens if dropped else 0)
    current, cut = _cut_to_level(current, outputs, excess, shorten)
    excess = total_tokens(current) - budget + (notice_tokens if dropped else 0)
    current, last = _shorten_outputs(current, outputs, range(len(current)), excess, shorten, None)
    excess = total_tokens(current) - budget + (notice_tokens if dropped else 0)
    return Fitted(tuple(current), dropped, archived + cut + last, max(0, excess))


def _tail_start(entries: Sequence[Entry]) -> int:
    """Where the newest indivisible part starts: the last position before the end at which the view can be split."""
    cuts = [cut for cut in cuts_of(entries) if cut < len(entries)]
    return cuts[-1] if cuts else 0


def _drop_oldest(entries: list[Entry], excess: int, keep: int) -> tuple[list[Entry], tuple[Entry, ...]]:
    head = leading_system(entries)
    while head < len(entries) and entries[head].summary is not None:
        head += 1
    freed = 0
    cuts = set(cuts_of(entries))
    best = head
    for position in range(head, max(head, len(entries) - keep + (keep > 0))):
        if position in cuts:
            best = position
            if freed >= excess:
                break
        freed += entries[position].tokens
    return entries[:head] + entries[best:], tuple(entries[head:best])


def _cut_to_level(
    entries: list[Entry], outputs: Mapping[tuple[int, int], Output], excess: int, shorten: Shorten
) -> tuple[list[Entry], int]:
    """Cuts the largest outputs to one size, as large as possible, so that `excess` tokens are freed."""
    if excess <= 0:
        return entries, 0
    costs = sorted((cost for cost, _, _ in _shown_outputs(entries, outputs, range(len(entries)), 0)), reverse=True)
    level = total = 0
    for count, cost in enumerate(costs, start=1):
        total += cost
        level = (total - excess) // count
        if count == len(costs) or level >= costs[count]:
            break
    level = max(MIN_CUT_TOKENS, level)
    return _shorten_outputs(entries, outputs, range(len(entries)), excess, shorten, level)


def _shorten_outputs(
    entries: list[Entry],
    outputs: Mapping[tuple[int, int], Output],
    places: range,
    excess: int,
    shorten: Shorten,
    tokens: int | None,
) -> tuple[list[Entry], int]:
    """Shortens outputs, the oldest first (if they are cut, the largest first), until `excess` tokens are freed. A
    placeholder must save at least half of what it replaces."""
    if excess <= 0:
        return entries, 0
    found = _shown_outputs(entries, outputs, places, 2 * PLACEHOLDER_TOKENS if tokens is None else tokens)
    if tokens is not None:
        found.sort(key=lambda item: (-item[0], item[1]))
    result = list(entries)
    count = 0
    for cost, place, index in found:
        if excess <= 0:
            break
        entry = result[place]
        message = entry.message
        if message is None:
            continue
        edit = shorten(message, outputs[message.seq, index], tokens)
        if edit.tokens < cost:
            result[place] = replace(entry, replaced={**entry.replaced, index: edit})
            excess -= cost - edit.tokens
            count += 1
    return result, count


def _shown_outputs(
    entries: Sequence[Entry], outputs: Mapping[tuple[int, int], Output], places: range, minimum: int
) -> list[tuple[int, int, int]]:
    """Outputs that are shown whole or cut and take more than `minimum` tokens: tokens, position of the entry, block."""
    found: list[tuple[int, int, int]] = []
    for place in places:
        message = entries[place].message
        for index in range(len(message.blocks) if message else 0):
            if message and (message.seq, index) in outputs:
                shown = entries[place].replaced.get(index)
                cost = output_tokens(message, index) if shown is None else shown.tokens
                if cost > minimum and not isinstance(shown, ArchiveEdit):
                    found.append((cost, place, index))
    return found
