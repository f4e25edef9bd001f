"""Compaction: replaces older messages in the view with a summary, if that frees tokens; one compaction at a time. And
what a summary or a hand-off is made from: the turns and the state of a session."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from types import MappingProxyType

import anyio
from pydantic import TypeAdapter

from contextstash.events.calls import WAITS, calls_of
from contextstash.events.state import State, fold
from contextstash.events.turns import Turn, conversation_of
from contextstash.handoff.file_pieces import focus_of, known_files, lines_shown, pieces_of_files
from contextstash.handoff.summary import Beside, summary_of, task_of
from contextstash.handoff.user_block import Shown, pinned_rules, shown_by, user_block
from contextstash.messages.base import Format
from contextstash.outputs.placeholders import compaction_digest
from contextstash.reduce.prune import MAX_WRITTEN, archive_outputs, effect_of, log_calls, view_change, writer_model
from contextstash.results import CompactResult
from contextstash.safety.sanitize import MARKER, encodable, unforged
from contextstash.session.access import Access
from contextstash.session.edit import Planned, binds, edit, entries_after, plan_stripping
from contextstash.session.masks import shown_text, shown_texts
from contextstash.session.open_session import NO_VIEW, WITHIN_REACH
from contextstash.view.ladder import (
    MAX_SUMMARY_SHARE,
    CompactPlan,
    last_anchor,
    leading_fixed,
    oldest_outputs,
    plan_of,
    standing_summaries,
)
from contextstash.view.session_snapshot import Place, SessionSnapshot, digest_edit, pinned_text, summary_edit
from contextstash.view.view import Entry, rewinds_in_force
from contextstash.window.settings import ContextSettings
from contextstash.writers import (
    CONSENT,
    EXTRACTIVE,
    MIN_CHARACTERS,
    SummaryRequest,
    WriterFailedError,
    WriterSettings,
    WrittenSummary,
    summary_by_model,
)
from contextstash_storage.errors import BadInputError, ContextstashError, DamagedError
from contextstash_storage.records import (
    KEPT_BEHIND,
    ArchiveEdit,
    Call,
    Edit,
    KeptState,
    Message,
    Output,
    Session,
    SummaryEdit,
    compressed,
    zstd,
)

logger = logging.getLogger(__name__)

COMPACTION, LEASE_SECONDS = "compaction", 240.0
"""The purpose and the time of the lease: a model that writes a summary is called for at most 180 seconds. A killed
compaction blocks others for so long, in which requests still fit. Two at once would both pay for a summary."""

WITH_BODIES = replace(WITHIN_REACH, bodies=True)
"""Nearly all of what a compaction reads of a session, it reads with bodies."""

MAX_READ = 1_500
"""How many messages are folded into the state at a time, and from how many, the newest, a model writes a summary."""

FOLD_EVERY, MAX_KEPT = 500, 1_000
"""While a session grows, its state is folded after so many messages, up to so many before the newest one: fewer are
kept by a compaction, which needs the state as it was before these. A window of 200,000 tokens holds some 1,000, so only
a session which was never reduced has more. A message takes a quarter of a millisecond, a state some 40."""

HISTORY_MESSAGES = 400
"""From how many of the newest messages the texts of files in use are taken. Measured with bench/fidelity: 300
keep nearly as much as all; the limit bounds the work in a long session."""

RUNNING = "Nothing done: another compaction of this session is running. Ask again in a moment if more has to leave."

HEAD_TOKENS = 60
"""About what the line before the texts takes."""

FRAME_TOKENS = 120
"""About what the words around a summary take, and the heading of what is added to it."""

WORDS_PARTS = 4
"""All messages with the user's words take at most so many times what a compaction adds, beside the first request: then
they are written again as one, which costs the prompt cache once. A larger share would leave less room for the
conversation."""

RECORDED = "## From the record of this session"

RECORDED_TOKENS = 400
"""Tokens of what is added to a summary that a model or the host wrote: the paths of some twenty changed files, and a
line each for open tasks, failed runs and the newest calls."""

MAX_RECORDED_SHARE = 10
"""It takes at most one part in so many of the tokens that the summary replaces, so that it stays short."""


HOST, MODEL = "host", "anthropic"
"""Who writes, if it is not the session's state."""

STRATEGIES = ("auto", HOST, MODEL, EXTRACTIVE)


@dataclass(frozen=True)
class Asked:
    """What a compaction was asked for: see `compact_session`."""

    strategy: str = "auto"
    summary: str | None = None
    instructions: str | None = None
    dry_run: bool = False

    def model(self, access: Access, snapshot: SessionSnapshot) -> WriterSettings | None:
        """The model that writes; None if the host or the session's state does. Raises BadInputError if the strategy
        cannot be used, or if the host's text is not a summary."""
        strategy, text = self.strategy, self.summary
        if strategy not in STRATEGIES:
            raise BadInputError(f"Unknown strategy '{strategy[:40]}'. Pass one of {', '.join(STRATEGIES)}.")
        if strategy == HOST if text is None else strategy not in ("auto", HOST):
            raise BadInputError(
                f"Pass either a summary or the strategy {strategy}: a passed summary is used unchanged. The strategy"
                " host needs `summary`, written as the prompt compact describes; auto goes with both."
            )
        if text is not None and len(encodable(text).strip()) < MIN_CHARACTERS:
            raise BadInputError(
                "summary is empty or too short to continue from. Pass the whole hand-off text, or omit it to get an"
                " extractive summary; the prompt compact describes what a summary must contain."
            )
        wanted = snapshot.settings.summarizer if strategy == "auto" else strategy
        model = writer_model(access, snapshot) if text is None and wanted != EXTRACTIVE else None
        if model is None and strategy == MODEL:
            raise BadInputError(
                "The strategy anthropic calls a model, which needs the user's consent and a key. Consent is given in"
                f" the user's own configuration by {CONSENT}. The key is read from that variable or from"
                " ANTHROPIC_API_KEY; an API of the user's own at summarizer_base_url needs none. Otherwise use the"
                " strategy auto."
            )
        return model


async def compact_session(
    access: Access,
    session_id: str | None = None,
    *,
    summary: str | None = None,
    instructions: str | None = None,
    strategy: str = "auto",
    dry_run: bool = False,
    always: bool = True,
) -> CompactResult:
    """Replace all but the recent messages with a summary: the host's `summary`, or one written by `strategy`. If that
    would not make the view smaller, or if another compaction of the session is running, nothing is changed, and
    `reason` says why. Unless `always`, nothing is summarized as long as placeholders for old outputs are enough."""
    name, asked = await access.session_id(session_id), Asked(strategy, summary, instructions, dry_run)

    async def plan() -> Planned[CompactResult] | CompactResult:
        snapshot = await access.snapshot(name, WITH_BODIES)
        model = asked.model(access, snapshot)
        # Placeholders alone would cost a model that binds its reasoning as much of it as a summary does.
        found = await asyncio.to_thread(plan_of, snapshot, always or binds(snapshot.session.model))
        if not found.covered:
            return await _nothing(access, snapshot, found.reason)
        return await _summarizing(SessionTurns(access, snapshot), asked, model, found)

    async with nullcontext(True) if dry_run or summary is not None else only_one(access, name) as may_run:
        return await edit(access, plan) if may_run else await _nothing(access, await access.snapshot(name), RUNNING)


@asynccontextmanager
async def only_one(access: Access, session_id: str) -> AsyncIterator[bool]:
    """Hold the lease for compacting the session until the end of the block; False if another compaction has it."""
    holder = secrets.token_hex(8)
    try:
        yield await access.store.acquire_lease(session_id, COMPACTION, holder, LEASE_SECONDS)
    finally:
        # Also what a cancelled call has taken; without the shield, this would be cancelled too. It expires anyway.
        with anyio.CancelScope(shield=True), suppress(ContextstashError):
            await access.store.release_lease(session_id, COMPACTION, holder)


async def _summarizing(
    turns: SessionTurns, asked: Asked, model: WriterSettings | None, plan: CompactPlan
) -> Planned[CompactResult] | CompactResult:
    """Replace what the plan covers with a summary, unless that would hardly be smaller."""
    access, snapshot, span = turns.access, turns.snapshot, plan.span
    stripping = await asyncio.to_thread(plan_stripping, snapshot, span[1] + 1, needed=True)
    shown = await _shown_turns(turns, plan)
    state = await state_at(turns, span[1])
    in_use = await _files_in_use(turns, shown, plan.files_room)
    summary = await _written(turns, asked, model, plan, state, shown, in_use)
    words = await asyncio.to_thread(added_words, state, plan)
    text = await _completed(plan, state, summary)
    pinned = await _pinned_within(access, snapshot, *span)
    made = await asyncio.to_thread(
        summary_edit, snapshot, text, *span, strategy=summary.strategy, pinned=pinned, files=in_use
    )
    # The user's words are shown after the last system message at the head, or before all messages.
    head = [entry.last_seq for entry in snapshot.entries[: leading_fixed(snapshot.entries)] if entry.message]
    said = [digest_edit(snapshot, max(head, default=-1), words, (made.summary_id,))] if words else []
    tokens, limit, takes = made.tokens + sum(each.tokens for each in said), plan.summary_limit, ""
    if tokens >= plan.tokens * MAX_SUMMARY_SHARE:
        takes = f"{tokens:,} tokens and replace only {plan.tokens:,}"
    elif made.tokens >= limit:
        takes = f"{made.tokens:,} tokens, and must take less than {limit:,}: write a shorter one"
    if takes:
        return await _nothing(access, snapshot, f"Nothing done: the summary would take {takes}.")
    effect = await effect_of(access, snapshot)
    done = "Would summarize" if asked.dry_run else "Summarized"
    reason = f"{done} {plan.messages} messages, {made.first_seq} to {made.last_seq}.{stripping.said}"

    def result(_: Session, entries: Sequence[Entry]) -> CompactResult:
        change = view_change(snapshot, entries, " ".join(filter(None, (effect, summary.note))) or None)
        saved = change["tokens_before"] - change["tokens_after"]
        about = {"compacted": not asked.dry_run, "dry_run": asked.dry_run or None, "messages_summarized": plan.messages}
        return CompactResult.of(made, **change, **about, tokens_saved=saved, reason=reason, model=summary.model)

    edits = [*await _edits(access, plan, made), *said]
    return Planned(snapshot, edits, result, stripping, "compaction", reason, summary.strategy, dry_run=asked.dry_run)


async def _edits(access: Access, plan: CompactPlan, summary: SummaryEdit) -> list[Edit]:
    """The summary and the edits that go with it: outputs become placeholders, and outputs of recent messages beyond
    `prune_at_results` are archived with one digest message."""
    snapshot, settings = plan.snapshot, plan.snapshot.settings
    edits: list[Edit] = [summary, *(each.edit for each in await archive_outputs(access, snapshot, plan.archived))]
    if settings.prune_at_results is not None and settings.tool_digest in ("llm", "heuristic"):
        oldest = oldest_outputs(plan.kept, snapshot.unpinned, settings.prune_at_results)
        archived = await archive_outputs(access, snapshot, oldest, even_if_larger=True)
        edits += [each.edit for each in archived]
        anchor = last_anchor(await entries_after(access, snapshot, edits))
        if archived and anchor is not None:
            lines = [(each.output, each.digest) for each in archived]
            names = tuple(each.output.handle for each in archived)
            edits.append(digest_edit(snapshot, anchor, compaction_digest(lines, MAX_WRITTEN), names))
    handles = tuple(edit.handle for edit in edits if isinstance(edit, ArchiveEdit))
    return [summary.model_copy(update={"archived": handles}), *edits[1:]]


async def _nothing(access: Access, snapshot: SessionSnapshot, reason: str) -> CompactResult:
    change = view_change(snapshot, snapshot.entries, await effect_of(access, snapshot))
    return CompactResult(**change, tokens_saved=0, compacted=False, reason=reason)


# The summary: what its writer is given, and what is written beside it.


def added_words(state: State, plan: CompactPlan) -> str:
    """What is added to the user's words in the view by a compaction after which the session has this state; it stays
    clearly below what the plan replaces."""
    snapshot, budget, count = plan.snapshot, plan.snapshot.budget, plan.snapshot.counter.count
    if not keeps_words(snapshot.settings):
        return ""
    head = snapshot.entries[: leading_fixed(snapshot.entries)]
    before = [entry.user_words for entry in head if entry.user_words]
    room = budget.request_tokens + WORDS_PARTS * budget.words_tokens
    renew = sum(map(count, before)) + budget.words_tokens > room
    return user_block(
        state.words,
        plan.span[1],
        Shown() if renew else shown_by(before),
        rules=pinned_rules(snapshot.settings.pin),
        first_tokens=min(budget.request_tokens, plan.tokens * 2 // 5),
        tokens=budget.words_tokens * (WORDS_PARTS - 1) if renew else min(budget.words_tokens, plan.tokens // 8),
        count=count,
    )


async def _shown_turns(turns: SessionTurns, plan: CompactPlan) -> tuple[Turn, ...]:
    """The turns of the messages that stay in the view, without the texts that are or become placeholders."""
    covered = {id(entry) for entry in plan.covered}
    kept = [entry for entry in turns.snapshot.entries if entry.message and id(entry) not in covered]
    gone = {
        (candidate.output.seq, candidate.output.block) for candidate in await asyncio.to_thread(lambda: plan.archived)
    }
    gone |= {(entry.first_seq, block) for entry in kept for block in entry.replaced}

    def without(turn: Turn) -> Turn:
        texts = ("" if (turn.seq, place) in gone else text for place, text in enumerate(turn.texts))
        return replace(turn, texts=tuple(texts))

    return tuple(map(without, await turns.at(entry.first_seq for entry in kept)))


async def _written(
    turns: SessionTurns,
    asked: Asked,
    model: WriterSettings | None,
    plan: CompactPlan,
    state: State,
    shown: Sequence[Turn],
    in_use: str,
) -> WrittenSummary:
    """The summary for this plan, without secrets: the host's text as it was passed, else the model's, else one made of
    the state, with a note if the model failed, or is not called in a dry run. `shown` are the turns that the view shows
    beside it, `in_use` are the texts of files there. Only a model reads the turns that the plan covers, the newest
    MAX_READ."""
    snapshot, span, room, count = plan.snapshot, plan.span, plan.summary_room, plan.snapshot.counter.count
    if asked.summary is not None:
        return WrittenSummary(shown_text(snapshot.settings, encodable(asked.summary).strip()), HOST)
    covered = [entry.summary for entry in plan.covered if entry.summary]
    beside = Beside(keeps_words(snapshot.settings), [*(text for turn in shown for text in turn.texts), in_use])
    earlier = "\n\n".join(edit.summary for edit in covered if edit.strategy != EXTRACTIVE)

    def extract() -> str:
        told = summary_of(state, since=span[0], beside=beside, earlier=earlier, max_tokens=room, count=count)
        return "\n\n".join(told)

    summary, calls, note = None, tuple[Call, ...](), None
    if model is not None and asked.dry_run:
        note = f"{model.model} would write the summary. A dry run calls no model: this one is made without it."
    elif model is not None:
        seqs = [entry.first_seq for entry in plan.covered if entry.message]
        request = SummaryRequest(
            turns=await turns.at(seqs[-MAX_READ:]),
            previous="\n\n".join(edit.summary for edit in covered or standing_summaries(snapshot.entries)) or None,
            replaces=bool(covered) or snapshot.settings.summaries == "one",
            instructions=asked.instructions,
            prompt=snapshot.settings.summary_prompt,
            max_tokens=room,
            count=count,
            extract=extract,
        )
        try:
            summary = await summary_by_model(model, request)
        except WriterFailedError as error:
            logger.warning("the model that writes summaries failed: %s", error)
            calls, note = error.calls, f"{MODEL} could not write the summary: {error}"
    if summary is None:
        summary = WrittenSummary(await asyncio.to_thread(extract), EXTRACTIVE, calls=calls, note=note)
    await log_calls(turns.access, snapshot, summary.calls, span)
    return replace(summary, text=shown_text(snapshot.settings, summary.text))


async def _pinned_within(access: Access, snapshot: SessionSnapshot, first_seq: int, last_seq: int) -> str:
    """The pinned outputs of the messages `first_seq` to `last_seq` as a summary shows them; empty if there are none."""
    wanted = [output for output in snapshot.pinned.values() if first_seq <= output.seq <= last_seq]
    wanted.sort(key=lambda output: (output.seq, output.block))
    texts = await access.from_texts(
        snapshot, wanted, lambda batch: [(output, shown_text(snapshot.settings, text)) for output, text in batch]
    )
    return pinned_text(snapshot, texts)


async def _files_in_use(turns: SessionTurns, shown: Sequence[Turn], room: int) -> str:
    """The texts of the files that the newest turns use, as they stand at their end, without what the view shows anyway;
    empty if there are none. `shown` are the turns that stay in the view, without the texts that leave it; the texts
    take at most `room` tokens."""
    if room <= HEAD_TOKENS:
        return ""
    recent, count = await turns.recent(), turns.snapshot.counter.count

    def work() -> str:
        known, focus = known_files(recent), focus_of(recent)
        return pieces_of_files(known, room - HEAD_TOKENS, count, focus, seen=lines_shown(shown))

    if not (text := await asyncio.to_thread(work)):
        return ""
    return (
        f"{MARKER} files in use, as they stood after message {recent[-1].seq}, with the edits up to there; what a later"
        f" message changes or shows is newer:]\n{unforged(text)}"
    )


async def _completed(plan: CompactPlan, state: State, summary: WrittenSummary) -> str:
    """A summary that a model or the host wrote, with what the session's state says and it may lack: changed files, open
    tasks, failed runs; or what the user said, if no messages hold that beside it. Unchanged if it was made of the
    state, or if there is no room."""
    snapshot, count = plan.snapshot, plan.snapshot.counter.count
    room = min(RECORDED_TOKENS, plan.tokens // MAX_RECORDED_SHARE)
    room = min(room, plan.summary_limit - FRAME_TOKENS - count(summary.text))
    if room <= 0 or summary.strategy == EXTRACTIVE:
        return summary.text
    if keeps_words(snapshot.settings):
        beside, since = Beside(words=True, texts=[summary.text]), plan.span[0]
        state = replace(state, earlier=None)
        write = partial(summary_of, state, since=since, beside=beside, max_names=0, max_tokens=room, count=count)
    else:
        write = partial(task_of, state, room, count)
    added = "\n\n".join(await asyncio.to_thread(write))
    return f"{summary.text}\n\n{RECORDED}\n{added}" if added else summary.text


# The turns and the state of a session, which summaries and hand-offs are made from.


def turn_of(
    settings: ContextSettings, fmt: Format, message: Message, outputs: Mapping[Place, Output] = MappingProxyType({})
) -> Turn:
    """A recorded message with its full texts; `outputs` are the session's by their places."""
    places = range(len(message.blocks))
    texts = fmt.read(message.body or {}).texts or ("",)
    return Turn(
        seq=message.seq,
        role=message.role,
        kind=message.kind,
        blocks=message.blocks,
        texts=shown_texts(settings, message.role, message.blocks, texts),
        handles={block: outputs[message.seq, block].handle for block in places if (message.seq, block) in outputs},
    )


class SessionTurns:
    """The turns of a session as of a snapshot, with their full texts, even if the view shows them shortened; without
    the calls of our own tools and replies that a client wrote itself."""

    def __init__(self, access: Access, snapshot: SessionSnapshot) -> None:
        self.access = access
        self.snapshot = snapshot
        self._made: dict[int, Turn] = {}
        self._unseen: set[int] = set()
        self._left = [edit.span for edit in rewinds_in_force(snapshot.edits)]

    async def between(self, first: int, last: int) -> tuple[Turn, ...]:
        """The turns of the messages from `first` to `last` that the model was shown, but not those of a hidden branch,
        also if a summary covers them."""
        wanted = [seq for seq in range(first, last + 1) if not any(start <= seq <= end for start, end in self._left)]
        return conversation_of(turn for turn in await self._read(wanted) if turn.seq not in self._unseen)

    async def recent(self) -> tuple[Turn, ...]:
        """The newest HISTORY_MESSAGES of them."""
        end = self.snapshot.session.counters.messages
        return await self.between(max(0, end - HISTORY_MESSAGES), end - 1)

    async def at(self, seqs: Iterable[int]) -> tuple[Turn, ...]:
        """The turns of these messages, in order."""
        return conversation_of(await self._read(sorted(set(seqs))))

    async def _read(self, wanted: Sequence[int]) -> list[Turn]:
        missing = [seq for seq in wanted if seq not in self._made]
        recorded = await self.access.messages_at(self.snapshot, missing) if missing else ()
        self._unseen |= {message.seq for message in recorded if not message.agent_visible}
        outputs, settings, fmt = self.snapshot.outputs, self.snapshot.settings, self.snapshot.format
        blocks = [(each.seq, place, block.type) for each in recorded for place, block in enumerate(each.blocks)]
        if any(kind == "tool_result" and (seq, place) not in outputs for seq, place, kind in blocks):
            read = await self.access.store.read_outputs(self.snapshot.session_id, first=missing[0], last=missing[-1])
            outputs = {**outputs, **{(output.seq, output.block): output for output in read}}
        made = await asyncio.to_thread(lambda: [turn_of(settings, fmt, message, outputs) for message in recorded])
        self._made |= {turn.seq: turn for turn in made}
        return [self._made[seq] for seq in wanted]


@cache
def _adapter() -> TypeAdapter[State]:
    return TypeAdapter(State)


async def state_at(turns: SessionTurns, last_seq: int) -> State:
    """The state of the session after message `last_seq`, which is kept for the next one who needs it."""
    state = await _kept(turns.access, turns.snapshot, last_seq)
    while last_seq - state.seq > MAX_READ + MAX_KEPT:  # it was not folded while the session grew, such as of an import
        state = await _folded_apart(turns.access, turns.snapshot, state, last_seq)
    new = await turns.between(state.seq + 1, last_seq)
    state = await asyncio.to_thread(fold, new, state) if new else replace(state, seq=last_seq)
    await keep_state(turns.access, turns.snapshot, state)
    return state


async def fold_behind(access: Access, session: Session) -> None:
    """Fold what is new in a session that has grown by FOLD_EVERY messages, so that a compaction costs what is new."""
    snapshot = await access.snapshot(session.session_id, NO_VIEW)
    last_seq = session.counters.messages - 1 - MAX_KEPT
    known = await _kept(access, snapshot, last_seq)
    if last_seq - known.seq >= FOLD_EVERY:
        await _folded_apart(access, snapshot, known, last_seq)


async def _folded_apart(access: Access, snapshot: SessionSnapshot, state: State, last_seq: int) -> State:
    """A state with at most MAX_READ more messages up to `last_seq`, apart from what is folded later: up to a reply,
    behind the results of the calls before it. It is kept: whoever is interrupted goes on from it."""
    last = min(state.seq + MAX_READ, last_seq)
    new = await SessionTurns(access, snapshot).between(state.seq + 1, last)
    starts = [at for at in range(1, len(new)) if new[at].role == "assistant" != new[at - 1].role]
    steps = reversed([*pairwise(starts[len(starts) // 2 :])])
    ended = (end for begin, end in steps if all(call.output for call in calls_of(new[begin:end])))
    new = new[: next(ended, starts[-1])] if starts else new
    state = await asyncio.to_thread(fold, new, state) if new else replace(state, seq=last)
    await keep_state(access, snapshot, state, KEPT_BEHIND)
    return state


async def _kept(access: Access, snapshot: SessionSnapshot, last_seq: int) -> State:
    """The newest state that was kept; that of no message if all are of later ones or of branches that the conversation
    has left."""
    rewinds, found = rewinds_in_force(snapshot.edits), State()
    for key in ("", KEPT_BEHIND):
        try:
            if (note := await access.store.get_note(snapshot.session_id, KeptState, key)) is None:
                continue
            state = _adapter().validate_python(json.loads(zstd.decompress(b64decode(note.text))))
        except (ValueError, DamagedError, zstd.ZstdError):  # it is folded again
            continue
        new = [edit for edit in rewinds if edit.edit_id not in note.rewinds]
        is_current = {edit.edit_id for edit in rewinds} >= set(note.rewinds)
        if is_current and found.seq < state.seq <= last_seq and all(edit.first_seq > state.seq for edit in new):
            found = state
    return found


async def keep_state(access: Access, snapshot: SessionSnapshot, state: State, key: str = "") -> None:
    """Keep a state for the next compaction, unless a call still runs: its result comes with a later message; behind the
    newest messages none does. It is a cache: nothing fails if the database is busy, or the session deleted."""
    if key != KEPT_BEHIND and any(each.text.endswith(WAITS) for each in state.calls):
        return
    rewinds = tuple(edit.edit_id for edit in rewinds_in_force(snapshot.edits) if edit.first_seq <= state.seq)

    def kept() -> str:
        """The state compressed: after 20,000 messages it takes 50 KB then, and not 290."""
        # Not pydantic's own JSON, which refuses half of a surrogate pair in the user's words.
        return b64encode(compressed(json.dumps(_adapter().dump_python(state, mode="json")).encode())).decode()

    with suppress(ContextstashError):
        note = KeptState(text=await asyncio.to_thread(kept), rewinds=rewinds)
        await access.store.put_note(snapshot.session_id, note, key)


def keeps_words(settings: ContextSettings) -> bool:
    """Whether views have the user's words in messages of their own. The presets that reproduce other systems have
    them in or behind their one summary."""
    return settings.low_water is not None
