"""The hand-off: what a new window needs to know of a session, with the handles of its outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from contextstash.context.extraction.extractive_summary import extract_summary
from contextstash.context.extraction.turns import Turn, without_own_calls
from contextstash.context.text.sanitize import MARKER, unforged
from contextstash.context.tool_outputs.limits import OutputLimits, limit
from contextstash.context.tool_outputs.own_tools import is_own_call
from contextstash.context.tool_outputs.placeholders import output_line
from contextstash.context.view.session_snapshot import SessionSnapshot
from contextstash.service.estimate import estimate_session
from contextstash.service.reduction.write_summary import turn_of
from contextstash.service.requests.whole_outputs import WholeOutputs, whole_outputs
from contextstash.service.session_access import READ_AT_ONCE, Access
from contextstash.service.view_reader import WITH_ALL_OUTPUTS
from contextstash_storage.records import Edit, Event, Message, RewindEdit, SummaryEdit

MAX_INDEX_SHARE = 0.3
"""Share of max_tokens that the index of handles may take. A guess: the summary matters more."""

MIN_INDEXED_TOKENS = 200
"""A smaller output is not worth a line of the index. A guess."""

MAX_READ_TOKENS = 600_000
"""How much of a session a hand-off is made from, the newest first; of what is older, only the user's own messages. The
client waits for it: 500,000 tokens took 2 s on an idle machine."""

EXTRACTIVE = "extractive"

NEW_WINDOW = "Hand-off to the client's new window."
TO_SESSION = "Hand-off to session {}."


async def hand_off(access: Access, session_id: str, max_tokens: int) -> str | None:
    """A summary of the whole session and an index of its outputs; at most `max_tokens`. None if the session has nothing
    to hand off, or if `max_tokens` is too small."""
    snapshot = await access.snapshot(session_id, WITH_ALL_OUTPUTS)
    whole = await whole_outputs(access, snapshot)
    count = snapshot.counter.count
    head = (
        f"{MARKER}: hand-off of session {session_id}. Everything of it is kept: search_history finds it,"
        " get_archived_output reads outputs by their handles. Go on from here.]"
    )
    index = _index(snapshot, whole, int(max_tokens * MAX_INDEX_SHARE))
    left = max_tokens - count(f"{head}\n\n\n\n{index}") - 2
    if left < MIN_INDEXED_TOKENS:
        return None
    summary = await _summary(access, snapshot, whole, left)
    if not summary:
        return None
    shown = limit(summary, OutputLimits(tokens=left, cut="head_tail"), count).text
    return "\n\n".join(part for part in (head, shown, index) if part)


async def _summary(access: Access, snapshot: SessionSnapshot, whole: WholeOutputs, max_tokens: int) -> str:
    """What a model wrote about the session, if anything, and an extract of what came after; else an extract of all."""
    written = _written_by_model(snapshot.edits)
    after = written.last_seq + 1 if written else 0
    turns = await _turns(access, snapshot, whole, after)
    count = snapshot.counter.count
    if written is None:
        return await asyncio.to_thread(extract_summary, turns, max_tokens=max_tokens, count=count)
    text = unforged(written.summary)
    room = max_tokens - count(text) - 2
    since = ""
    if turns and room >= MIN_INDEXED_TOKENS:
        since = await asyncio.to_thread(extract_summary, turns, max_tokens=room, count=count)
    return "\n\n".join(part for part in (text, since) if part)


def _written_by_model(edits: Sequence[Edit]) -> SummaryEdit | None:
    """The newest summary that a model wrote for us. The client's own summaries are in its window already, and an
    extract of ours would be made again from the same messages."""
    own = (edit for edit in reversed(edits) if isinstance(edit, SummaryEdit) and edit.seq is None)
    return next((edit for edit in own if edit.strategy != EXTRACTIVE and edit.text != edit.summary), None)


async def _turns(access: Access, snapshot: SessionSnapshot, whole: WholeOutputs, first: int) -> tuple[Turn, ...]:
    """The session's messages from `first` on, also those that the client has compacted; without abandoned branches, the
    client's summaries, and the calls of our own tools."""
    listed = await access.store.read_messages(snapshot.session_id, first=first, bodies=False)
    own = await _written_for_client(access, snapshot, listed)
    wanted = _wanted([message for message in listed if message.seq not in own], _abandoned(snapshot))
    turns: list[Turn] = []
    handles = {place: output.handle for place, output in whole.outputs.items()}
    for start in range(0, len(wanted), READ_AT_ONCE):
        messages = await access.store.read_messages_at(snapshot.session_id, wanted[start : start + READ_AT_ONCE])
        read = await asyncio.to_thread(lambda found: [turn_of(snapshot, each, handles) for each in found], messages)
        turns += [_with_whole_texts(turn, whole) for turn in read]
    return without_own_calls(turns)


async def _written_for_client(access: Access, snapshot: SessionSnapshot, listed: Sequence[Message]) -> set[int]:
    """The positions of replies in which the model wrote a summary for its client. Codex records such a reply like any
    other, and then compacts with a message that ends with its text."""
    before = {
        after.seq: reply.seq
        for reply, after in pairwise(listed)
        if after.kind == "summary" and reply.role == "assistant"
    }
    read = await access.store.read_messages_at(snapshot.session_id, sorted({*before, *before.values()}))
    texts = {message.seq: "\n".join(snapshot.format.read(message.body or {}).texts).strip() for message in read}
    return {reply for summary, reply in before.items() if texts[reply] and texts[summary].endswith(texts[reply])}


def _wanted(listed: Sequence[Message], abandoned: Sequence[RewindEdit]) -> list[int]:
    """The positions of the messages that a hand-off is made from."""
    wanted: list[int] = []
    left = MAX_READ_TOKENS
    for message in reversed(listed):
        if message.kind == "summary" or any(edit.first_seq <= message.seq <= edit.last_seq for edit in abandoned):
            continue
        left -= message.tokens
        if left >= 0 or (message.role == "user" and message.kind == "message"):
            wanted.append(message.seq)
    return wanted[::-1]


def _abandoned(snapshot: SessionSnapshot) -> list[RewindEdit]:
    """The rewinds in force. One that lies inside a later summary is in force too: that summary did not undo it."""
    undone = {number for edit in snapshot.edits if edit.kind == "restore" for number in edit.undoes}
    return [edit for edit in snapshot.edits if isinstance(edit, RewindEdit) and edit.edit_id not in undone]


def _with_whole_texts(turn: Turn, whole: WholeOutputs) -> Turn:
    texts = tuple(whole.texts.get((turn.seq, place), text) for place, text in enumerate(turn.texts))
    return Turn(turn.seq, turn.role, turn.blocks, texts, turn.handles, turn.kind)


def _index(snapshot: SessionSnapshot, whole: WholeOutputs, max_tokens: int) -> str:
    """The newest outputs of at least MIN_INDEXED_TOKENS, one line each."""
    lines: dict[str, str] = {}
    left = max_tokens - snapshot.counter.count("## Outputs kept\n")
    for _, output in sorted(whole.outputs.items(), reverse=True):
        if output.tokens < MIN_INDEXED_TOKENS or output.handle in lines or is_own_call(output.tool, output.argument):
            continue
        line = output_line(output)
        left -= snapshot.counter.count(line) + 1
        if left < 0:
            break
        lines[output.handle] = line
    return "\n".join(("## Outputs kept, newest first", *lines.values())) if lines else ""


async def hand_off_once(access: Access, session_id: str, max_tokens: int, to: str | None, resumed: bool) -> str | None:
    """The hand-off, once for each window: for the session's own new window, or for the session `to`. A resumed window
    is given one only if it began with a compaction by the client and has not had one. Logged as an event."""
    reason = NEW_WINDOW if to is None else TO_SESSION.format(to)
    if await _has_had_it(access, session_id, reason, resumed):
        return None
    text = await hand_off(access, session_id, max_tokens)
    if text is not None:
        session = await access.session(session_id)
        tokens = (await estimate_session(access, session)).tokens
        event = Event(
            kind="handoff", tokens_before=tokens, tokens_after=tokens, reason=reason, seq=session.counters.messages
        )
        await access.store.append_event(session_id, event)
    return text


async def _has_had_it(access: Access, session_id: str, reason: str, resumed: bool) -> bool:
    """Whether this window has had its hand-off, or needs none."""
    last = next((e for e in await access.store.last_events(session_id, ("handoff",), 1) if e.reason == reason), None)
    if resumed:
        began = await _last_compaction(access, session_id)
        return began is None or (last is not None and last.seq >= began)
    if last is None:
        return False
    # Without a reply in between it is the same window: the hook is installed twice, or the client repeats the event.
    since = await access.store.read_messages(session_id, first=last.seq, bodies=False)
    return reason != NEW_WINDOW or not any(message.role == "assistant" for message in since)


async def _last_compaction(access: Access, session_id: str) -> int | None:
    """The position of the summary with which the client's present window begins, None if it never compacted."""
    edits = await access.store.read_edits(session_id)
    by_client = [edit.seq for edit in edits if isinstance(edit, SummaryEdit) and edit.seq is not None]
    return by_client[-1] if by_client else None
