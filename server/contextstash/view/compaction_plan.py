"""Compaction plans: where to split a view into what is summarized and what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from contextstash.view.ladder import (
    PLACEHOLDER_TOKENS,
    Candidate,
    PrunePlan,
    cuts_of,
    enough_to_free,
    leading_fixed,
    leading_kept,
    visible_outputs,
)
from contextstash.view.session_snapshot import SessionSnapshot, pinned_tokens
from contextstash.view.view import Entry, total_tokens
from contextstash_storage.records import SummaryEdit

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
    messages with `whole` tokens, and the newest step, keep outputs of more than `smallest` tokens, the others keep
    placeholders; all keep them if `whole` is None. A first request of at most `request` tokens is not summarized
    alone."""

    tokens: int
    messages: int
    either: bool = False
    levels: bool = False
    whole: int | None = None
    smallest: int = 0
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
        first, beyond = next(entry.first_seq for entry in self.covered if not entry.digest), self.snapshot.beyond
        return min(first, beyond.first_seq) if beyond else first, self.covered[-1].last_seq

    @property
    def tokens(self) -> int:
        return total_tokens(self.covered) + (self.snapshot.beyond.tokens if self.snapshot.beyond else 0)

    @property
    def messages(self) -> int:
        """How many recorded messages are covered."""
        own = sum(entry.message is not None for entry in self.covered)
        return own + (self.snapshot.beyond.messages if self.snapshot.beyond else 0)

    @cached_property
    def archived(self) -> tuple[Candidate, ...]:
        """The outputs in kept messages that become placeholders."""
        return _outputs_to_archive(self.snapshot, self.kept, self.keep)

    @property
    def summary_limit(self) -> int:
        """The tokens that a summary must stay below to be used: the preset's share of the usable window, or all of
        it."""
        share = self.snapshot.settings.summary_share
        return int((1 if share is None else share) * self.snapshot.budget.usable)

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
    if not cuts:
        return CompactPlan(snapshot, keep, reason="Nothing done: the session cannot be split at any message.")
    messages = 0 if keep.either and keep.tokens else keep.messages
    # At most half, so that a short session gets smaller too.
    budget = keep.tokens if keep.either else min(keep.tokens, total_tokens(body) // 2)
    wanted, tokens = len(body), 0
    for cost in reversed(_costs(snapshot, body, keep)):
        tokens += cost
        if tokens > budget:
            break
        wanted -= 1
    wanted = min(wanted, max(0, len(body) - messages))
    later = [cut for cut in cuts if wanted <= cut <= len(body) - messages]
    earlier = [cut for cut in cuts if cut <= wanted]
    cut = later[0] if later else earlier[-1] if earlier else 0
    covered, why = body[:cut], ""
    if not wanted or not cut:
        why = f"all {len(body)} messages are recent or belong to an open tool call."
    elif not any(entry.message for entry in covered):
        why = "only summaries precede the recent messages."
    elif len(covered) == 1 and not covered[0].summary and covered[0].tokens <= keep.request:
        why = "only the first request precedes the recent messages."
    return (
        CompactPlan(snapshot, keep, reason=f"Nothing done: {why}")
        if why
        else CompactPlan(snapshot, keep, covered, body[cut:])
    )


def _costs(snapshot: SessionSnapshot, body: Sequence[Entry], keep: KeepLimits) -> list[int]:
    """The tokens of each entry once the outputs that the plan replaces are placeholders."""
    saved: dict[int, int] = {}
    for candidate in _outputs_to_archive(snapshot, body, keep):
        seq = candidate.output.seq
        saved[seq] = saved.get(seq, 0) + candidate.view_tokens - PLACEHOLDER_TOKENS
    return [entry.tokens - (saved.get(entry.message.seq, 0) if entry.message else 0) for entry in body]


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
            large = max(keep.smallest, PLACEHOLDER_TOKENS)
            found += [each for each in visible_outputs(entry, snapshot.unpinned) if each.view_tokens > large]
    return tuple(reversed(found))


def mark_step(snapshot: SessionSnapshot) -> PrunePlan:
    """As many, of the whole view, of the outputs that a compaction to the low-water mark would archive among the
    messages that it keeps, as the mark needs: for a session that has too little else to summarize."""
    found = _outputs_to_archive(snapshot, snapshot.entries, keep_limits(snapshot))
    chosen = enough_to_free(found, snapshot.own_tokens - (snapshot.budget.low_water or 0))
    if sum(candidate.content_tokens for candidate in chosen) <= snapshot.budget.prune_minimum_tokens:
        return PrunePlan((), "Nothing done: older outputs take too little to pay for the broken cache.")
    return PrunePlan(chosen, "")


def keep_limits(snapshot: SessionSnapshot) -> KeepLimits:
    """What a compaction keeps, by the session's settings."""
    settings, budget = snapshot.settings, snapshot.budget
    bounded = budget.low_water is not None and settings.compact_keep_tokens is None
    # If the summaries take too much of the window, the next one takes the place of all.
    standing = snapshot.entries[leading_fixed(snapshot.entries) : leading_kept(snapshot.entries)]
    share = int(budget.usable * SUMMARIES_SHARE)
    levels = settings.summaries == "levels" and total_tokens(standing) + budget.summary_tokens * bounded <= share
    tokens, whole, request = budget.compact_keep_tokens, None, 0
    if bounded:
        # An eighth is kept even if system prompt, tools and summaries take the rest of what the mark allows.
        tokens = max(tokens - _fixed_tokens(snapshot, levels) - pinned_tokens(snapshot), budget.free // 8)
        whole = int(tokens * WHOLE_SHARE)
        request = int(budget.usable * WHOLE_REQUEST_SHARE)
    either, smallest = settings.compact_keep == "either", settings.prune_smallest_tokens
    return KeepLimits(tokens, settings.compact_keep_messages, either, levels, whole, smallest, request)


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
    if not plan.covered and not keep.levels and snapshot.settings.summaries == "levels":
        # There is too little beside the summaries to write one in the place of all.
        keep = replace(keep, levels=True)
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
