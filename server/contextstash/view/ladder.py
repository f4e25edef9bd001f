"""The ladder: the steps by which a view becomes smaller, one after another, until it is small enough.

A step is pure: it takes the view and says which outputs become placeholders (`archive`), which are cut, which messages
are left out of one request; compaction_plan.py says which are summarized. A preset is the steps and the numbers that
its settings name: `plan_prune` protects the newest outputs, `count_step` allows a number of them, `mark_step` (of
compaction_plan.py) stops at the low-water mark, `fit` makes the view fit one request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from contextstash.messages.rules import safe_cuts
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash.view.view import Entry, output_tokens, smallest_placeholder, smallest_tokens, total_tokens
from contextstash_storage.records import ArchiveEdit, Output, Replacement

PLACEHOLDER_TOKENS = 60
"""About how many tokens a placeholder takes; the exact number is counted from its text. Ours take about 50."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An output that could be archived. It takes `view_tokens` in the view now; `content_tokens` of them are for its
    content, without the overhead of a message."""

    output: Output
    view_tokens: int
    content_tokens: int


def visible_outputs(entry: Entry, outputs: Mapping[Place, Output]) -> list[Candidate]:
    """The outputs that an entry shows whole or cut, the last first."""
    message = entry.message
    found: list[Candidate] = []
    for place in range(len(message.blocks) - 1, -1, -1) if message else ():
        output = outputs.get((entry.first_seq, place))
        shown = entry.replaced.get(place)
        if message is None or output is None or isinstance(shown, ArchiveEdit):
            continue
        if shown is not None:
            found.append(Candidate(output, shown.tokens, shown.tokens))
        else:
            cost = output_tokens(message, place)
            found.append(Candidate(output, cost, cost - message.blocks[place].tokens + output.tokens))
    return found


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The outputs to archive, in order of position; if there are none, the reason."""

    chosen: tuple[Candidate, ...]
    reason: str


Step = Callable[[SessionSnapshot], PrunePlan]
"""A step that archives outputs of a view."""


def count_step(snapshot: SessionSnapshot) -> PrunePlan:
    """The oldest outputs beyond `prune_at_results`, whatever their size."""
    shown = sum(len(visible_outputs(entry, snapshot.pinned)) for entry in snapshot.entries)
    keep = max(0, (snapshot.settings.prune_at_results or 0) - shown)
    oldest = oldest_outputs(snapshot.entries, snapshot.unpinned, keep)
    return PrunePlan(oldest, f"Nothing done: the view holds no more tool outputs than {keep}.")


def cut_candidates(snapshot: SessionSnapshot, characters: int) -> list[Candidate]:
    """The outputs that show more than so many characters, whole or cut, but no pinned ones."""
    return [
        each
        for entry in snapshot.entries
        for each in reversed(visible_outputs(entry, snapshot.unpinned))
        if (len(edit.text) if (edit := entry.replaced.get(each.output.block)) else each.output.characters) > characters
    ]


NOTHING = (
    "Nothing done: outputs protected: {}, too small to archive: {}, all others archived or pinned. To prune protected"
    " ones, pass keep_last or protect_tokens: then only what you pass is protected."
)
"""Why a prune has nothing to archive."""


def plan_prune(
    snapshot: SessionSnapshot,
    outputs: Mapping[Place, Output] | None = None,
    *,
    keep_last: int | None = None,
    protect_tokens: int | None = None,
    minimum_tokens: int | None = None,
) -> PrunePlan:
    """Goes back from the newest output, skips what is protected, and takes all others as one batch; by default of all
    outputs that are not pinned.

    An output is protected if it is among the `keep_last` newest, or if it and all newer ones add up to at most
    `protect_tokens`; by the settings, which replace both if neither is given, also if fewer than `prune_protect_turns`
    user turns follow it. The batch is taken only if it frees more than `minimum_tokens`, by default those of the
    settings or 0: each prune invalidates the provider's prompt cache from its first change on.
    """
    settings, budget, protect_turns, minimum = snapshot.settings, snapshot.budget, 0, minimum_tokens or 0
    if keep_last is None and protect_tokens is None:
        keep_last, protect_tokens = settings.prune_keep_last, budget.prune_protect_tokens
        protect_turns = settings.prune_protect_turns
        minimum = budget.prune_minimum_tokens if minimum_tokens is None else minimum_tokens
    outputs = snapshot.unpinned if outputs is None else outputs
    turns = seen = total = protected = small = 0
    chosen: list[Candidate] = []
    for entry in reversed(snapshot.entries):
        turns += entry.is_user_turn
        for candidate in visible_outputs(entry, outputs):
            tokens = candidate.content_tokens
            if turns < protect_turns:
                protected += 1
                continue
            seen += 1
            total += tokens
            if seen <= (keep_last or 0) or total <= (protect_tokens or 0):
                protected += 1
            elif tokens < settings.prune_smallest_tokens:
                small += 1
            else:
                chosen.append(candidate)
    freed = sum(candidate.content_tokens for candidate in chosen)
    if not chosen:
        return PrunePlan((), NOTHING.format(protected, small))
    if freed <= minimum:
        return PrunePlan(
            (),
            f"Nothing done: pruning {len(chosen)} outputs would free about {freed:,} tokens, not more than the minimum"
            f" of {minimum:,} that pays for the broken prompt cache. Pass minimum_tokens=0 to prune anyway.",
        )
    return PrunePlan(tuple(reversed(chosen)), "")


def oldest_outputs(entries: Sequence[Entry], outputs: Mapping[Place, Output], keep: int) -> tuple[Candidate, ...]:
    """The oldest outputs, whatever their size, without which `keep` are left in the view."""
    visible = [candidate for entry in entries for candidate in reversed(visible_outputs(entry, outputs))]
    return tuple(visible[: max(0, len(visible) - keep)])


NEAR_ENOUGH = 0.25
"""Share of the tokens to free that may stay, if the next output is more than twice as large as they are: the view then
ends nearer to its target. A prune of 16,000 tokens to 6,880 went to 3,900, and what it took last was needed next."""


def enough_to_free(candidates: Iterable[Candidate], tokens: int) -> tuple[Candidate, ...]:
    """The first of these outputs that have to become placeholders to free so many tokens, or nearly so many (see
    NEAR_ENOUGH); all if they are too few."""
    chosen: list[Candidate] = []
    left = tokens
    for candidate in candidates:
        freed = candidate.view_tokens - PLACEHOLDER_TOKENS
        if left <= 0 or (left <= NEAR_ENOUGH * tokens and freed > 2 * left):
            break
        left -= freed
        chosen.append(candidate)
    return tuple(chosen)


# What stands where a view may be split.


def leading_fixed(entries: Sequence[Entry]) -> int:
    """How many entries at the head stay in every view: the system messages, and our messages with the user's words."""
    other = (place for place, entry in enumerate(entries) if not (entry.is_system or entry.is_user_block))
    return next(other, len(entries))


def leading_kept(entries: Sequence[Entry]) -> int:
    """How many entries at the head these and the summaries after them are."""
    head = leading_fixed(entries)
    return next((place for place in range(head, len(entries)) if not entries[place].summary), len(entries))


def cuts_of(entries: Sequence[Entry]) -> list[int]:
    """The positions at which a list of entries can be split: those that every pairing rule allows."""
    allowed = set(safe_cuts([entry.message for entry in entries if entry.message]))
    cuts: list[int] = []
    seen = 0
    for position, entry in enumerate(entries):
        if seen in allowed:
            cuts.append(position)
        seen += entry.message is not None
    return [*cuts, len(entries)] if seen in allowed else cuts


def starts_of(entries: Sequence[Entry]) -> list[int]:
    """The positions of the messages and summaries at which a list of entries can be split. A digest message has the
    position of the message before it, and leaves with that."""
    return [entries[cut].first_seq for cut in cuts_of(entries) if cut < len(entries) and not entries[cut].digest]


def last_anchor(entries: Sequence[Entry]) -> int | None:
    """The last position after which a digest message keeps the view valid. Not directly after a summary: there the
    digest would be among the covered messages, and be hidden with them."""
    places = [cut for cut in cuts_of(entries) if cut > 0 and entries[cut - 1].summary is None]
    return entries[places[-1] - 1].last_seq if places else None


# One request.

MIN_CUT_TOKENS = 200
"""An output that must be cut for the view to fit keeps at least this many tokens; if that is too many, it is archived.
Enough for a few lines of its head and tail, and the notice between them."""

KEPT_OUTPUTS = 16
"""Before messages are left out, the newest outputs are cut, but to no less than this part of the budget. What
was said is worth more than the middle of an output that can be retrieved."""

MARGIN = 10
"""A view that must be shortened is shortened by this part of the budget more than necessary: otherwise each of the next
requests would have to be shortened again, and write the prompt cache again."""

Shorten = Callable[[Output, int | None], Replacement]
"""`shorten(output, tokens)`: the output as a placeholder if `tokens` is None, else cut to that many tokens."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """How a view fits one request: `dropped` are the entries left out, which follow the system messages; `edits`
    shorten outputs of the others. `excess` is by how many tokens the view still exceeds the budget, 0 if it fits."""

    dropped: tuple[Entry, ...] = ()
    edits: tuple[Replacement, ...] = ()
    excess: int = 0


def fit(
    snapshot: SessionSnapshot,
    entries: Sequence[Entry],
    budget: int,
    shorten: Shorten,
    *,
    notice_tokens: int,
    is_part: bool = False,
) -> Fitted:
    """Shortens a view to `budget` tokens. If the settings say so, tool outputs become placeholders first, the oldest
    first, and then the newest are cut, as far as that leaves enough of them. Then the oldest messages are left out, up
    to a position that every pairing rule allows, but never the newest `fit_keep_messages`. Last, outputs in what
    remains are cut, also those that are cut already, and if that is not enough, they become placeholders too; pinned
    ones only if nothing else is left.

    `entries` lack what earlier requests left out. The pairing rules are applied to the whole view: of a part they may
    allow more, and then the second request of a view would leave out more than the first. A placeholder has a smallest
    size: so it is known of a long view, of which this is only a part, that messages will be left out, and their outputs
    are not shortened before."""
    if total_tokens(entries) <= budget:
        return Fitted()
    settings, whole, unpinned = snapshot.settings, snapshot.entries, snapshot.unpinned
    archive, keep_messages = settings.fit_by == "archive", settings.fit_keep_messages
    starts = set(starts_of(whole))
    ladder = _Ladder(list(entries), shorten)
    goal = budget - budget // MARGIN if archive else budget
    if archive:
        tail = max((place for place, entry in enumerate(entries) if entry.first_seq in starts), default=0)
        size = max(MIN_CUT_TOKENS, budget // KEPT_OUTPUTS)
        smallest = smallest_placeholder(settings, snapshot.counter)
        if is_part or sum(smallest_tokens(entry, smallest) for entry in entries) > budget:
            ladder.shorten_kept(unpinned, goal, tail, size)
        else:
            ladder.archive(unpinned, goal, range(tail))
            if ladder.tokens > budget:
                ladder.cut(unpinned, goal, size)
    dropped: tuple[Entry, ...] = ()
    if ladder.tokens > budget:
        dropped = ladder.leave_out(ladder.tokens - goal + notice_tokens, keep_messages, starts)
    room = budget - (notice_tokens if dropped else 0)
    for these in (unpinned, snapshot.outputs):
        ladder.cut(these, room, MIN_CUT_TOKENS)
        ladder.archive(these, room)
    kept = {entry.first_seq for entry in ladder.view if entry.message}
    edits = tuple(edit for edit in ladder.made.values() if edit.seq in kept)
    return Fitted(dropped, edits, max(0, ladder.tokens - room))


@dataclass
class _Ladder:
    """The steps of one request, each towards a goal in tokens. `made` are the edits so far, the last one of each
    output."""

    view: list[Entry]
    shorten: Shorten
    made: dict[Place, Replacement] = field(default_factory=dict, init=False)

    @property
    def tokens(self) -> int:
        return total_tokens(self.view)

    def archive(self, outputs: Mapping[Place, Output], goal: int, places: range | None = None) -> None:
        """Outputs, by default of all entries, become placeholders, the oldest first. A placeholder must save at least
        half of what it replaces."""
        excess = self.tokens - goal
        if excess > 0:
            self._replace(self._shown(outputs, 2 * PLACEHOLDER_TOKENS, places), excess, None)

    def cut(self, outputs: Mapping[Place, Output], goal: int, minimum: int) -> None:
        """The largest outputs are cut to one size, as large as possible but at least `minimum`."""
        excess = self.tokens - goal
        if excess <= 0:
            return
        costs = sorted((cost for cost, _, _ in self._shown(outputs, 0)), reverse=True)
        level = total = 0
        for count, cost in enumerate(costs, start=1):
            total += cost
            level = (total - excess) // count
            if count == len(costs) or level >= costs[count]:
                break
        size = max(minimum, level)
        self._replace(sorted(self._shown(outputs, size), key=lambda each: (-each[0], each[1])), excess, size)

    def shorten_kept(self, outputs: Mapping[Place, Output], goal: int, first: int, size: int) -> None:
        """The same two steps in a view that they do not bring below its budget, so that they change each output: they
        go back from the newest one to where the view exceeds the goal, and archive what is before `first`."""
        head = leading_kept(self.view)
        left = goal - total_tokens(self.view[:head])
        for place in reversed(range(head, len(self.view))):
            if left < 0 and place < first:
                break
            here, whole = range(place, place + 1), self.view[place].tokens
            if place < first:
                self._replace(self._shown(outputs, 2 * PLACEHOLDER_TOKENS, here), whole, None)
            self._replace(self._shown(outputs, size, here), whole, size)
            left -= self.view[place].tokens
        self.made = dict(sorted(self.made.items()))

    def leave_out(self, excess: int, keep: int, starts: Collection[int]) -> tuple[Entry, ...]:
        """Leave out the oldest messages up to one of the `starts`, and return them."""
        head = leading_kept(self.view)
        freed, best = 0, head
        for position in range(head, max(head, len(self.view) - keep + (keep > 0))):
            if self.view[position].first_seq in starts and not self.view[position].digest:
                best = position
                if freed >= excess:
                    break
            freed += self.view[position].tokens
        dropped = tuple(self.view[head:best])
        self.view = self.view[:head] + self.view[best:]
        return dropped

    def _shown(
        self, outputs: Mapping[Place, Output], minimum: int, places: range | None = None
    ) -> list[tuple[int, int, Output]]:
        """The outputs in these entries that take more than `minimum` tokens, with these and the entry's position."""
        return [
            (candidate.view_tokens, place, candidate.output)
            for place in (range(len(self.view)) if places is None else places)
            for candidate in reversed(visible_outputs(self.view[place], outputs))
            if candidate.view_tokens > minimum
        ]

    def _replace(self, found: Sequence[tuple[int, int, Output]], excess: int, tokens: int | None) -> None:
        for cost, place, output in found:
            if excess <= 0:
                break
            edit = self.shorten(output, tokens)
            if edit.tokens < cost:
                entry = self.view[place]
                self.view[place] = replace(entry, replaced={**entry.replaced, output.block: edit})
                excess -= cost - edit.tokens
                self.made[edit.seq, edit.block] = edit
