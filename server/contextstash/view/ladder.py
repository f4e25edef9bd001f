"""The ladder: the steps by which a view becomes smaller, one after another, until it is small enough.

A step is pure: it takes the view and says which outputs become placeholders (`archive`), which are cut, which messages
are summarized, or left out of one request. A preset is the steps and the numbers that its settings name: `plan_prune`
protects the newest outputs, `count_step` allows a number of them, `plan_of` says what is summarized and what is kept,
`mark_step` stops at the low-water mark, `fit` makes the view fit one request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from contextstash.messages.rules import safe_cuts
from contextstash.view.session_snapshot import PINNED_SHARE, Place, SessionSnapshot, own_tokens
from contextstash.view.view import Entry, output_tokens, smallest_placeholder, smallest_tokens, total_tokens
from contextstash_storage.records import ArchiveEdit, Output, Replacement, SummaryEdit

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
    """Those of the outputs that an entry shows whole or cut, in order."""
    message = entry.message
    found: list[Candidate] = []
    for place, block in enumerate(message.blocks) if message else ():
        output, shown = outputs.get((entry.first_seq, place)), entry.replaced.get(place)
        if message is None or output is None or isinstance(shown, ArchiveEdit):
            continue
        if shown is not None:
            found.append(Candidate(output, shown.tokens, shown.tokens))
        else:
            cost = output_tokens(message, place)
            found.append(Candidate(output, cost, cost - block.tokens + output.tokens))
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
        for each in visible_outputs(entry, snapshot.unpinned)
        if (len(edit.text) if (edit := entry.replaced.get(each.output.block)) else each.output.characters) > characters
    ]


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
    turns = seen = total = 0
    chosen: list[Candidate] = []
    for entry in reversed(snapshot.entries):
        turns += entry.is_user_turn
        for candidate in reversed(visible_outputs(entry, outputs)) if turns >= protect_turns else ():
            seen, total = seen + 1, total + candidate.content_tokens
            is_protected = seen <= (keep_last or 0) or total <= (protect_tokens or 0)
            if not is_protected and candidate.content_tokens >= settings.prune_smallest_tokens:
                chosen.append(candidate)
    freed = sum(candidate.content_tokens for candidate in chosen)
    if not chosen:
        return PrunePlan(
            (),
            "Nothing done: each output is protected, too small, archived or pinned. To prune protected ones, pass"
            " keep_last or protect_tokens: then only what you pass is protected.",
        )
    if freed <= minimum:
        return PrunePlan(
            (),
            f"Nothing done: pruning {len(chosen)} outputs would free about {freed:,} tokens, not more than the minimum"
            f" of {minimum:,} that pays for the broken prompt cache. Pass minimum_tokens=0 to prune anyway.",
        )
    return PrunePlan(tuple(reversed(chosen)), "")


def oldest_outputs(entries: Sequence[Entry], outputs: Mapping[Place, Output], keep: int) -> tuple[Candidate, ...]:
    """The oldest outputs, whatever their size, without which `keep` are left in the view."""
    visible = [candidate for entry in entries for candidate in visible_outputs(entry, outputs)]
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
    for place, entry in enumerate(entries):
        if not entry.user_words and (entry.message is None or entry.message.role != "system"):
            return place
    return len(entries)


def leading_kept(entries: Sequence[Entry]) -> int:
    """How many entries at the head these and the summaries after them are."""
    head = leading_fixed(entries)
    return next((place for place in range(head, len(entries)) if not entries[place].summary), len(entries))


def cuts_of(entries: Sequence[Entry]) -> list[int]:
    """The positions at which a list of entries can be split: those that every pairing rule allows."""
    allowed = set(safe_cuts([entry.message for entry in entries if entry.message]))
    before = accumulate((entry.message is not None for entry in entries), initial=0)
    return [position for position, messages in enumerate(before) if messages in allowed]


def starts_of(entries: Sequence[Entry]) -> list[int]:
    """The positions of the messages and summaries at which a list of entries can be split. A digest message has the
    position of the message before it, and leaves with that."""
    return [entries[cut].first_seq for cut in cuts_of(entries) if cut < len(entries) and not entries[cut].digest]


def last_anchor(entries: Sequence[Entry]) -> int | None:
    """The last position after which a digest message keeps the view valid. Not directly after a summary: there the
    digest would be among the covered messages, and be hidden with them."""
    places = [cut for cut in cuts_of(entries) if cut > 0 and entries[cut - 1].summary is None]
    return entries[places[-1] - 1].last_seq if places else None


# A compaction: what is summarized and what is kept.

MAX_SUMMARY_SHARE = 0.9
"""A compaction is only done if the summary takes less than this share of what it replaces. A smaller saving is
not worth the loss of detail."""

WHOLE_SHARE = 0.6
"""Of the messages that a reduction to the low-water mark keeps, the newest with this share of the tokens stay whole; in
older ones, outputs become placeholders. Measured with bench/fidelity: 0.3 to 1 keep about as much of what is needed
later; with 0.6 the history that is kept is about half as long again, and each of its outputs has a handle."""

WHOLE_REQUEST_SHARE = 1 / 4
"""Of the usable window: a first request up to this size is not summarized alone, which could only shorten the user's
words."""

SUMMARIES_SHARE = 0.10
"""Of the usable window: if the summaries exceed it, the next one takes the place of all. They leave nine tenths of the
window to the work."""

LEFT_SHARE = 0.47
"""A reduction to the low-water mark leaves about this share of the usable window at most, with its summary and the
texts of files: a little less than leaving out the oldest messages down to half does. Measured with bench/fidelity: with
more the window is reduced sooner again, and each reduction is written to the prompt cache."""

MIN_SUMMARY_TOKENS = 200
"""The smallest max_tokens that a summarizer is given, even if the summary covers little. Below this a summary
cannot name the task, the state and the next step."""

MAX_PART = 4
"""The texts of files take at most one part in so many of the tokens that a compaction frees, so that it frees most of
them: with more, the window fills again within a few turns."""


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """How many of the newest messages a compaction keeps: about `tokens`, and at least `messages`. With `either`,
    `messages` counts only if `tokens` is 0. With `levels`, earlier summaries stay next to the new one. Only the newest
    messages with `whole` tokens, and the newest step, keep large outputs, the others keep placeholders; all keep them
    if `whole` is None. A first request of at most `request` tokens is not summarized alone."""

    tokens: int
    messages: int
    either: bool = False
    levels: bool = False
    whole: int | None = None
    request: int = 0


@dataclass(frozen=True)
class CompactPlan:
    """A compaction of a view: `covered` are the entries that are to be summarized, which may include an earlier
    summary, with what is beyond the snapshot's reach; `kept` those behind them. If there are none, `reason` says
    why."""

    snapshot: SessionSnapshot
    keep: KeepLimits
    covered: tuple[Entry, ...] = ()
    kept: tuple[Entry, ...] = ()
    reason: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last position. Digest messages at the head are skipped: each belongs to a message that is
        not covered."""
        first = next(entry.first_seq for entry in self.covered if not entry.digest)
        return min(first, self.snapshot.beyond.first_seq), self.covered[-1].last_seq

    @property
    def tokens(self) -> int:
        return total_tokens(self.covered) + self.snapshot.beyond.tokens

    @property
    def messages(self) -> int:
        """How many recorded messages are covered."""
        return sum(entry.message is not None for entry in self.covered) + self.snapshot.beyond.messages

    @cached_property
    def archived(self) -> tuple[Candidate, ...]:
        """The outputs in kept messages that become placeholders."""
        return _outputs_to_archive(self.snapshot, self.kept, self.keep)

    @property
    def summary_limit(self) -> int:
        """The tokens that a summary must stay below to be used: the preset's share of the usable window, or all."""
        return int((self.snapshot.settings.summary_share or 1) * self.snapshot.budget.usable)

    @property
    def summary_room(self) -> int:
        """How many tokens the summary may take."""
        room = max(MIN_SUMMARY_TOKENS, min(self.snapshot.budget.summary_tokens, self.tokens // 3))
        return min(room, self.summary_limit * 3 // 4)  # the rest for the words around it

    @property
    def files_room(self) -> int:
        """How many tokens the texts of files that follow the summary may take: what a plan leaves of LEFT_SHARE of the
        usable window beside it. Without a low-water mark, only what the compaction frees bounds them."""
        snapshot, budget, room = self.snapshot, self.snapshot.budget, self.summary_room
        beside = self.summary_limit * 3 // 4 - room
        most = max(0, min(self.tokens // MAX_PART, budget.standing_tokens, beside))
        if self.keep.whole is None:
            return most
        kept = _fixed_tokens(snapshot, self.keep.levels) + sum(_costs(snapshot, self.kept, self.keep))
        return max(0, min(most, int(budget.usable * LEFT_SHARE) - kept - room))


def _split(snapshot: SessionSnapshot, keep: KeepLimits, cuts: Sequence[int]) -> CompactPlan:
    """Splits a view into what is summarized and what is kept.

    System messages and the user's words at the head are always kept. Of the rest about `keep.tokens` of the newest are
    kept, at most half unless `keep.either`, and at least `keep.messages` messages. The view is split only at one of the
    `cuts`, where no provider's rule is violated.
    """
    head = leading_kept(snapshot.entries) if keep.levels else leading_fixed(snapshot.entries)
    body, cuts = snapshot.entries[head:], [cut - head for cut in cuts if cut > head]
    messages = 0 if keep.either and keep.tokens else keep.messages
    # At most half, so that a short session gets smaller too.
    budget = keep.tokens if keep.either else min(keep.tokens, total_tokens(body) // 2)
    fitting = sum(total <= budget for total in accumulate(reversed(_costs(snapshot, body, keep))))
    wanted = min(len(body) - fitting, max(0, len(body) - messages))
    later = [cut for cut in cuts if wanted <= cut <= len(body) - messages]
    earlier = [cut for cut in cuts if cut <= wanted]
    cut = later[0] if later else earlier[-1] if earlier else 0
    covered, why = body[:cut], ""
    if not wanted or not cut:
        why = f"all {len(body)} messages are recent or belong to an open tool call."
    elif not any(entry.message for entry in covered) or (len(covered) == 1 and covered[0].tokens <= keep.request):
        why = "only summaries, or the first request, precede the recent messages."
    if why:
        return CompactPlan(snapshot, keep, reason=f"Nothing done: {why}")
    return CompactPlan(snapshot, keep, covered, body[cut:])


def _costs(snapshot: SessionSnapshot, body: Sequence[Entry], keep: KeepLimits) -> list[int]:
    """The tokens of each entry once the outputs that the plan replaces are placeholders."""
    saved = Counter[int]()
    for candidate in _outputs_to_archive(snapshot, body, keep):
        saved[candidate.output.seq] += candidate.view_tokens - PLACEHOLDER_TOKENS
    return [entry.tokens - (saved[entry.message.seq] if entry.message else 0) for entry in body]


def _outputs_to_archive(snapshot: SessionSnapshot, kept: Sequence[Entry], keep: KeepLimits) -> tuple[Candidate, ...]:
    """The outputs in kept messages that become placeholders, the oldest first: all but those of the newest messages."""
    if keep.whole is None:
        return ()
    found: list[Candidate] = []
    tokens, replied = 0, False
    for position, entry in enumerate(reversed(kept)):
        tokens += entry.tokens
        # What the model has not replied to yet it must see, with its calls.
        protected = not replied or (position < keep.messages and tokens <= keep.tokens)
        replied = replied or (entry.message is not None and entry.message.role == "assistant")
        if not protected and tokens > keep.whole:
            large = max(snapshot.settings.prune_smallest_tokens, PLACEHOLDER_TOKENS)
            found += [each for each in visible_outputs(entry, snapshot.unpinned)[::-1] if each.view_tokens > large]
    return tuple(reversed(found))


def mark_step(snapshot: SessionSnapshot) -> PrunePlan:
    """As many, of the whole view, of the outputs that a compaction to the low-water mark would archive among the
    messages that it keeps, as the mark needs: for a session that has too little else to summarize."""
    found = _outputs_to_archive(snapshot, snapshot.entries, keep_limits(snapshot))
    tokens = own_tokens(snapshot.session, snapshot.settings)
    chosen = enough_to_free(found, tokens - (snapshot.budget.low_water or 0))
    if sum(candidate.content_tokens for candidate in chosen) <= snapshot.budget.prune_minimum_tokens:
        return PrunePlan((), "Nothing done: older outputs take too little to pay for the broken cache.")
    return PrunePlan(chosen, "")


def keep_limits(snapshot: SessionSnapshot) -> KeepLimits:
    """What a compaction keeps, by the session's settings."""
    settings, budget = snapshot.settings, snapshot.budget
    bounded = budget.low_water is not None and settings.compact_keep_tokens is None
    # If the summaries take too much of the window, the next one takes the place of all.
    standing = sum(edit.tokens for edit in standing_summaries(snapshot.entries)) + budget.summary_tokens * bounded
    levels = settings.summaries == "levels" and standing <= int(budget.usable * SUMMARIES_SHARE)
    tokens, whole, request = budget.compact_keep_tokens, None, 0
    if bounded:
        # An eighth is kept even if system prompt, tools and summaries take the rest of what the mark allows.
        pinned = min(sum(output.tokens for output in snapshot.pinned.values()), budget.usable // PINNED_SHARE)
        tokens = max(tokens - _fixed_tokens(snapshot, levels) - pinned, budget.free // 8)
        whole = int(tokens * WHOLE_SHARE)
        request = int(budget.usable * WHOLE_REQUEST_SHARE)
    return KeepLimits(tokens, settings.compact_keep_messages, settings.compact_keep == "either", levels, whole, request)


def _fixed_tokens(snapshot: SessionSnapshot, levels: bool) -> int:
    """What a compaction leaves as it is: system messages, with `levels` the standing summaries, and what was never
    recorded."""
    unrecorded = max(0, snapshot.estimate[0] - snapshot.session.counters.view_tokens)
    head = leading_kept(snapshot.entries) if levels else leading_fixed(snapshot.entries)
    return unrecorded + total_tokens(snapshot.entries[:head])


def plan_of(snapshot: SessionSnapshot, asked: bool) -> CompactPlan:
    """The plan of a compaction by the session's settings. If somebody `asked` for it, messages are summarized although
    placeholders for old outputs would be enough."""
    cuts, keep, budget = cuts_of(snapshot.entries), keep_limits(snapshot), snapshot.budget
    plan = _split(snapshot, keep, cuts)
    if not plan.covered and asked and (keep.whole is not None or standing_summaries(snapshot.entries)):
        # With placeholders everything fits below the mark, or a short summary leaves room for all that came after it.
        # Who asks for a compaction gets one all the same.
        plan = replace(_split(snapshot, replace(keep, whole=None, either=False), cuts), keep=keep)
    if plan.covered and keep.whole is not None:
        # The texts of files in use follow the summary, and take the place of some recent messages.
        tokens = max(keep.tokens - budget.standing_tokens, budget.free // 8)
        narrower = _split(snapshot, replace(keep, tokens=tokens, whole=int(tokens * WHOLE_SHARE)), cuts)
        return narrower if narrower.covered else plan
    return plan


def standing_summaries(entries: Sequence[Entry]) -> tuple[SummaryEdit, ...]:
    """The summaries at the head of a view, after the system messages, oldest first."""
    return tuple(entry.summary for entry in entries[leading_fixed(entries) : leading_kept(entries)] if entry.summary)


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
) -> Fitted:
    """Shortens a view to `budget` tokens. If the settings say so, tool outputs become placeholders first, the oldest
    first, and then the newest are cut, as far as that leaves enough of them. Then the oldest messages are left out, up
    to a position that every pairing rule allows, but never the newest `fit_keep_messages`. Last, outputs in what
    remains are cut, also those that are cut already, and if that is not enough, they become placeholders too; pinned
    ones only if nothing else is left.

    `entries` lack what earlier requests left out. The pairing rules are applied to the whole view: of a part they may
    allow more, and then the second request of a view would leave out more than the first."""
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
        if sum(smallest_tokens(entry, smallest) for entry in entries) > budget:
            ladder.shorten_kept(unpinned, goal, tail, size)
        else:
            ladder.archive(unpinned, goal, tail)
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
    edits = tuple(edit for _, edit in sorted(ladder.made.items()) if edit.seq in kept)
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

    def archive(self, outputs: Mapping[Place, Output], goal: int, end: int | None = None) -> None:
        """Outputs of the entries before `end` become placeholders, the oldest first. A placeholder must save at least
        half of what it replaces."""
        if (excess := self.tokens - goal) > 0:
            self._replace(self._shown(outputs, 2 * PLACEHOLDER_TOKENS, end), excess, None)

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

    def shorten_kept(self, outputs: Mapping[Place, Output], goal: int, end: int, size: int) -> None:
        """The same two steps in a view that they do not bring below its budget, so that messages will be left out: they
        go back from the newest one to where the view exceeds the goal, and archive what is before `end`."""
        head = leading_kept(self.view)
        left = goal - total_tokens(self.view[:head])
        for place in reversed(range(head, len(self.view))):
            if left < 0 and place < end:
                break
            if place < end:
                found = self._shown(outputs, 2 * PLACEHOLDER_TOKENS, place + 1, place)
                self._replace(found, self.view[place].tokens, None)
            self._replace(self._shown(outputs, size, place + 1, place), self.view[place].tokens, size)
            left -= self.view[place].tokens

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
        self, outputs: Mapping[Place, Output], minimum: int, end: int | None = None, first: int = 0
    ) -> list[tuple[int, int, Output]]:
        """The outputs of the entries from `first` to before `end` that take more than `minimum` tokens, with these and
        the entry's position."""
        return [
            (candidate.view_tokens, place, candidate.output)
            for place, entry in enumerate(self.view[first:end], first)
            for candidate in visible_outputs(entry, outputs)
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
