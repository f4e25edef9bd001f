"""What a summary and a hand-off are made from: a session's turns and state; and the calls of models that write."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from pydantic import TypeAdapter

from contextstash.events.calls import WAITS, calls_of
from contextstash.events.state import State, fold
from contextstash.events.turns import Turn, conversation_of
from contextstash.messages.base import Format
from contextstash.session.access import Access
from contextstash.session.masks import shown_texts
from contextstash.session.open_session import NO_VIEW
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash.view.view import rewinds_in_force
from contextstash.window.settings import ContextSettings
from contextstash.writers import (
    WriterSettings,
)
from contextstash_storage.errors import ContextstashError, DamagedError
from contextstash_storage.records import KEPT_BEHIND, Call, KeptState, Message, Output, Session, compressed, zstd

MAX_READ = 1_500
"""How many messages are folded into the state at a time, and from how many, the newest, a model writes a summary."""

FOLD_EVERY, MAX_KEPT = 500, 1_000
"""While a session grows, its state is folded after so many messages, up to so many before the newest one: fewer are
kept by a compaction, which needs the state as it was before these. A window of 200,000 tokens holds some 1,000, so only
a session which was never reduced has more. A message takes a quarter of a millisecond, a state some 40."""

HISTORY_MESSAGES = 400
"""From how many of the newest messages the texts of files in use are taken. Measured with bench/fidelity: 300
keep nearly as much as all; the limit bounds the work in a long session."""


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


def writer_model(access: Access, snapshot: SessionSnapshot) -> WriterSettings | None:
    """The model that writes for a session; None if the user has not agreed to calls, or if none can be reached."""
    settings = snapshot.settings
    if not access.reaches_model(snapshot.session.agent, settings):
        return None
    return WriterSettings(
        model=settings.summarizer_model,
        api_key=access.api_key,
        base_url=settings.summarizer_base_url,
        output_chars=settings.summarizer_output_chars,
    )


async def log_calls(
    access: Access,
    snapshot: SessionSnapshot,
    calls: Sequence[Call],
    span: tuple[int, int],
    purpose: Literal["summary", "digest"] = "summary",
) -> None:
    """Log calls of a model about the messages `span`, with their cost if the price is known."""
    if not calls:
        return
    from contextstash.window.models import price_of

    for call in calls:
        cost = price_of(call.model, call) if call.cost is None else call.cost
        logged = call.model_copy(update={"purpose": purpose, "request_seq": span[1], "cost": cost})
        await access.store.append_log(snapshot.session_id, logged)
