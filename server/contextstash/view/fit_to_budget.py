"""Fits a view to the budget of one request without changing the session: what is shortened or left out, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from contextstash.view.compaction_plan import cuts_of, leading_fixed
from contextstash.view.edits import replaced
from contextstash.view.prune_plan import visible_outputs
from contextstash.view.session_snapshot import Place
from contextstash.view.view import Entry, total_tokens
from contextstash_storage.records import Output, Replacement

PLACEHOLDER_TOKENS = 60
"""About how many tokens a placeholder takes; the exact number is counted from its text. Ours take about 50."""

MIN_CUT_TOKENS = 200
"""An output that must be cut for the view to fit keeps at least this many tokens; if that is too many, it is archived.
Enough for a few lines of its head and tail, and the notice between them."""

KEPT_OUTPUTS = 16
"""Before messages are left out, the newest outputs are cut, but to no less than this part of the budget. What
was said is worth more than the middle of an output that can be retrieved."""

MARGIN = 10
"""A view that must be shortened is shortened by this part of the budget more than necessary: otherwise each of the next
requests would have to be shortened again, and write the prompt cache again."""

NOTICE_TOKENS = 80
"""What the notice about messages left out takes at most, if the caller does not pass the exact number."""

Shorten = Callable[[Output, int | None], Replacement]
"""`shorten(output, tokens)`: the output as a placeholder if `tokens` is None, else cut to that many tokens."""

Step = Callable[[list[Entry], int], tuple[list[Entry], int]]
"""`step(entries, excess)`: the entries with `excess` tokens less, if it can, and how many outputs it shortened."""


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
    outputs: Mapping[Place, Output],
    budget: int,
    shorten: Shorten,
    *,
    whole: Sequence[Entry],
    notice_tokens: int = NOTICE_TOKENS,
    archive: bool = True,
    keep_messages: int = 0,
    pinned: Collection[Place] = (),
) -> Fitted:
    """Shortens a view to `budget` tokens. If `archive`, tool outputs become placeholders first, the oldest first, and
    then the newest are cut, as far as that leaves enough of them. Then the oldest messages are left out, up to a
    position that every pairing rule allows, but never the `keep_messages` newest. Last, outputs in what remains are
    cut, also those that are cut already, and if that is not enough, they become placeholders too; `pinned` ones only if
    nothing else is left.

    `whole` is the view with what earlier requests left out, which `entries` lack. The pairing rules are applied to it:
    of a part they may allow more, and then the second request of a view would leave out more than the first."""
    if total_tokens(entries) <= budget:
        return Fitted(tuple(entries), (), 0, 0)
    everything, starts = outputs, _starts(whole)
    outputs = {place: output for place, output in outputs.items() if place not in pinned}
    steps = [
        lambda view, excess: _shorten_outputs(view, outputs, range(_tail_start(view, starts)), excess, shorten, None),
        lambda view, excess: _cut_to_level(view, outputs, excess, shorten, max(MIN_CUT_TOKENS, budget // KEPT_OUTPUTS)),
    ]
    goal = budget - budget // MARGIN if archive else budget
    current, shortened = _stepwise(list(entries), steps if archive else [], budget, goal)
    dropped: tuple[Entry, ...] = ()
    if total_tokens(current) > budget:
        current, dropped = _drop_oldest(current, total_tokens(current) - goal + notice_tokens, keep_messages, starts)
    room = budget - (notice_tokens if dropped else 0)
    last_steps = [*_last_steps(outputs, shorten), *(_last_steps(everything, shorten) if pinned else ())]
    current, cut = _stepwise(current, last_steps, room, room)
    return Fitted(tuple(current), dropped, shortened + cut, max(0, total_tokens(current) - room))


def _last_steps(outputs: Mapping[Place, Output], shorten: Shorten) -> list[Step]:
    return [
        lambda view, excess: _cut_to_level(view, outputs, excess, shorten, MIN_CUT_TOKENS),
        lambda view, excess: _shorten_outputs(view, outputs, range(len(view)), excess, shorten, None),
    ]


def _stepwise(entries: list[Entry], steps: Sequence[Step], budget: int, goal: int) -> tuple[list[Entry], int]:
    """Takes one step after another as long as the view is over the budget; each aims at the goal."""
    count = 0
    for step in steps:
        tokens = total_tokens(entries)
        if tokens <= budget:
            break
        entries, shortened = step(entries, tokens - goal)
        count += shortened
    return entries, count


def _starts(view: Sequence[Entry]) -> set[int]:
    """The sequence numbers before which the view can be split."""
    return {view[cut].first_seq for cut in cuts_of(view) if cut < len(view)}


def _tail_start(entries: Sequence[Entry], starts: Collection[int]) -> int:
    """The place of the newest part that cannot be split."""
    return max((place for place, entry in enumerate(entries) if entry.first_seq in starts), default=0)


def _drop_oldest(
    entries: list[Entry], excess: int, keep: int, starts: Collection[int]
) -> tuple[list[Entry], tuple[Entry, ...]]:
    head = leading_fixed(entries)
    while head < len(entries) and entries[head].summary is not None:
        head += 1
    freed = 0
    best = head
    for position in range(head, max(head, len(entries) - keep + (keep > 0))):
        if entries[position].first_seq in starts:
            best = position
            if freed >= excess:
                break
        freed += entries[position].tokens
    return entries[:head] + entries[best:], tuple(entries[head:best])


def _cut_to_level(
    entries: list[Entry], outputs: Mapping[Place, Output], excess: int, shorten: Shorten, minimum: int
) -> tuple[list[Entry], int]:
    """Cuts the largest outputs to one size, as large as possible but at least `minimum`, so that `excess` tokens are
    freed."""
    costs = sorted((cost for cost, _, _ in _shown_outputs(entries, outputs, range(len(entries)), 0)), reverse=True)
    level = total = 0
    for count, cost in enumerate(costs, start=1):
        total += cost
        level = (total - excess) // count
        if count == len(costs) or level >= costs[count]:
            break
    return _shorten_outputs(entries, outputs, range(len(entries)), excess, shorten, max(minimum, level))


def _shorten_outputs(
    entries: list[Entry],
    outputs: Mapping[Place, Output],
    places: range,
    excess: int,
    shorten: Shorten,
    tokens: int | None,
) -> tuple[list[Entry], int]:
    """Shortens outputs, the oldest first (if they are cut, the largest first), until `excess` tokens are freed. A
    placeholder must save at least half of what it replaces."""
    found = _shown_outputs(entries, outputs, places, 2 * PLACEHOLDER_TOKENS if tokens is None else tokens)
    if tokens is not None:
        found.sort(key=lambda item: (-item[0], item[1]))
    result = list(entries)
    count = 0
    for cost, place, output in found:
        if excess <= 0:
            break
        edit = shorten(output, tokens)
        if edit.tokens < cost:
            result[place] = replaced(result[place], output.block, edit)
            excess -= cost - edit.tokens
            count += 1
    return result, count


def _shown_outputs(
    entries: Sequence[Entry], outputs: Mapping[Place, Output], places: range, minimum: int
) -> list[tuple[int, int, Output]]:
    """Outputs that are shown whole or cut and take more than `minimum` tokens, with these and the entry's position."""
    return [
        (candidate.view_tokens, place, candidate.output)
        for place in places
        for candidate in reversed(visible_outputs(entries[place], outputs))
        if candidate.view_tokens > minimum
    ]
