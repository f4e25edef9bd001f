"""The summary of a compaction: its request, who writes it, and what is written beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from contextstash.events.state import State
from contextstash.events.turns import Turn
from contextstash.handoff.file_pieces import focus_of, known_files, lines_shown, pieces_of_files
from contextstash.handoff.summary import Beside, summary_of, task_of
from contextstash.reduce.session_turns import MAX_READ, OPENING, SessionTurns
from contextstash.reduce.user_words import keeps_words
from contextstash.reduce.writer_calls import log_calls, writer_settings
from contextstash.safety.sanitize import MARKER, unforged
from contextstash.session.access import Access
from contextstash.session.masks import shown_text
from contextstash.view.compaction_plan import CompactPlan, standing_summaries, summary_room
from contextstash.view.ladder import Candidate
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.view.view import build_view
from contextstash.writers.base import Summarizer, SummaryRequest, WrittenSummary
from contextstash.writers.writer_fallback import choose, content_key, write_summary
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import CachedSummary

HISTORY_MESSAGES = 400
"""From how many of the newest messages the texts of files in use are taken. Measured with bench/fidelity: 300
keep nearly as much as all; the limit bounds the work in a long session."""

EXTRACTIVE = "extractive"
"""The strategy of summaries that are made of the session's state: the next one has what they tell."""


@dataclass(frozen=True)
class Writers:
    """Which summarizers may write, and their input: `summary` is a text from the host."""

    strategy: str
    summary: str | None = None
    instructions: str | None = None

    def chosen(self, access: Access, snapshot: SessionSnapshot) -> tuple[Summarizer, ...]:
        """The summarizers to try, in order. Raises BadInputError if the requested strategy is unavailable."""
        strategy = self.strategy
        if strategy == "auto" and self.summary is None:
            strategy = snapshot.settings.summarizer
            if strategy == "anthropic" and not access.reaches_model(snapshot.session.agent, snapshot.settings):
                strategy = "auto"
        settings = writer_settings(access, snapshot.session.agent, snapshot.settings)
        try:
            return choose(strategy, self.summary, settings=settings)
        except BadInputError:
            if self.strategy != "auto":
                raise
            return choose("auto", self.summary, settings=settings)


async def covered_turns(turns: SessionTurns, plan: CompactPlan) -> tuple[Turn, ...]:
    """The turns that a model writes from: the newest MAX_READ of the messages that the plan covers, and of older ones
    the first OPENING, in which the task is."""
    covered = [entry.first_seq for entry in plan.covered if entry.message]
    opening = covered[:-MAX_READ][:OPENING]
    if plan.beyond is not None:
        first, last = plan.beyond.first_seq, min(plan.beyond.last_seq, plan.beyond.first_seq + OPENING - 1)
        recorded = await turns.access.store.read_messages(turns.snapshot.session_id, first=first, last=last)
        opening = [entry.first_seq for entry in build_view(recorded, turns.snapshot.overlay) if entry.message]
    return (*await turns.at(opening), *await turns.at(covered[-MAX_READ:]))


async def shown_turns(turns: SessionTurns, plan: CompactPlan, archived: Sequence[Candidate]) -> tuple[Turn, ...]:
    """The turns of the messages that stay in the view, without the texts that are or become placeholders."""
    covered = {id(entry) for entry in plan.covered}
    kept = [entry for entry in turns.snapshot.entries if entry.message and id(entry) not in covered]
    gone = {(candidate.output.seq, candidate.output.block) for candidate in archived}
    gone |= {(entry.first_seq, block) for entry in kept for block in entry.replaced}

    def without(turn: Turn) -> Turn:
        texts = ("" if (turn.seq, place) in gone else text for place, text in enumerate(turn.texts))
        return replace(turn, texts=tuple(texts))

    return tuple(map(without, await turns.at(entry.first_seq for entry in kept)))


def summary_request(
    snapshot: SessionSnapshot,
    plan: CompactPlan,
    turns: Sequence[Turn],
    instructions: str | None,
    state: State,
    shown: Sequence[Turn],
    in_use: str,
) -> SummaryRequest:
    """The request to a summarizer for this plan. `shown` are the turns that the view shows beside the summary, `in_use`
    are the texts of files there."""
    covered = tuple(entry.summary for entry in plan.covered if entry.summary)
    previous = covered or standing_summaries(snapshot.entries)
    beside = Beside.of_turns(shown, words=keeps_words(snapshot.settings))
    room, count = summary_room(snapshot, plan), snapshot.counter.count
    return SummaryRequest(
        turns=tuple(turns),
        previous="\n\n".join(edit.summary for edit in previous) or None,
        replaces=bool(covered) or snapshot.settings.summaries == "one",
        instructions=instructions,
        prompt=snapshot.settings.summary_prompt,
        max_tokens=room,
        count=count,
        extract=lambda: summary_of(
            state,
            since=plan.first_seq,
            beside=replace(beside, texts=[*beside.texts, in_use]),
            earlier="\n\n".join(edit.summary for edit in covered if edit.strategy != EXTRACTIVE),
            instructions=instructions or "",
            max_tokens=room,
            count=count,
        ),
    )


async def written(
    access: Access,
    snapshot: SessionSnapshot,
    writers: Sequence[Summarizer],
    request: SummaryRequest,
    span: tuple[int, int],
) -> tuple[WrittenSummary, float | None]:
    """The summary of messages `span`, and its cost in US dollars if that is known. If a model has summarized the same
    content before, its summary is taken from the cache."""
    first = writers[0]
    key = ""
    if first.slow:
        key = await asyncio.to_thread(content_key, request, first.strategy, snapshot.settings.summarizer_model)
        cached = await access.store.get_cached_summary(snapshot.session_id, key)
        if cached is not None:
            return WrittenSummary(cached.text, cached.strategy, cached.model), 0.0
    summary = await write_summary(request, writers)
    summary = replace(summary, text=shown_text(snapshot.settings, summary.text))
    cost = await log_calls(access, snapshot, summary.calls, *span)
    if first.slow and summary.strategy == first.strategy:
        kept = CachedSummary(text=summary.text, strategy=summary.strategy, model=summary.model)
        await access.store.put_cached_summary(snapshot.session_id, key, kept)
    return summary, cost


MIN_FILES_TOKENS = 100
"""With less room no texts of files are shown: it would be fewer than some ten lines of code."""

HEAD_TOKENS = 60
"""About what the line before the texts takes."""


async def files_in_use(turns: SessionTurns, shown: Sequence[Turn], room: int) -> str:
    """The texts of the files that the newest turns use, as they stand at their end, without what the view shows anyway;
    empty if there are none. `shown` are the turns that stay in the view, without the texts that leave it; the texts
    take at most `room` tokens."""
    if room - HEAD_TOKENS < MIN_FILES_TOKENS:
        return ""
    recent = await turns.between(max(0, turns.last_seq - HISTORY_MESSAGES + 1), turns.last_seq)
    count = turns.snapshot.counter.count

    def work() -> str:
        visible = {handle for turn in shown for place, handle in turn.handles.items() if turn.texts[place].strip()}
        # A file whose newest read, of the whole file, is in the view is not shown again.
        files = [file for file in known_files(recent) if not (file.whole and file.handle in visible)]
        return pieces_of_files(files, room - HEAD_TOKENS, count, focus_of(recent), lines_shown(shown))

    text = await asyncio.to_thread(work) if recent else ""
    if not text:
        return ""
    return (
        f"{MARKER} files in use, as they stood after message {recent[-1].seq}, with the edits up to there; what a later"
        f" message changes or shows is newer:]\n{unforged(text)}"
    )


RECORDED = "## From the record of this session"

RECORDED_TOKENS = 400
"""Tokens of what is added to a summary that a model or the host wrote: the paths of some twenty changed files, and a
line each for open tasks, failed runs and the newest calls."""

MAX_RECORDED_SHARE = 10
"""It takes at most one part in so many of the tokens that the summary replaces, so that it stays short."""


async def completed(snapshot: SessionSnapshot, plan: CompactPlan, state: State, summary: WrittenSummary) -> str:
    """A summary that a model or the host wrote, with what the session's state says and it may lack: changed files, open
    tasks, failed runs; or what the user said, if no messages hold that beside it. Unchanged if it was made of the
    state, or if there is no room."""
    room, count = min(RECORDED_TOKENS, plan.tokens // MAX_RECORDED_SHARE), snapshot.counter.count
    if not room or summary.strategy == EXTRACTIVE:
        return summary.text
    if keeps_words(snapshot.settings):
        beside, since = Beside(words=True, texts=[summary.text]), plan.first_seq
        state = replace(state, earlier=None)
        write = partial(summary_of, state, since=since, beside=beside, max_names=0, max_tokens=room, count=count)
    else:
        write = partial(task_of, state, room, count)
    added = await asyncio.to_thread(write)
    return f"{summary.text}\n\n{RECORDED}\n{added}" if added else summary.text
