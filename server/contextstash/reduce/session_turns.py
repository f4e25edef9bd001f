"""What a compaction reads of a session: its turns, each converted once, and its state, the fold of all of them.

The state is kept beside the session as a note, so that a compaction folds what is new since the one before. It is a
cache: without it, the newest messages are read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from pydantic import TypeAdapter, ValidationError

from contextstash.events.call_lines import WAITS
from contextstash.events.calls import is_dialog
from contextstash.events.state import State, fold
from contextstash.events.turns import Turn, conversation_of
from contextstash.session.access import Access
from contextstash.session.masks import shown_texts
from contextstash.view.branches import rewinds_in_force
from contextstash.view.session_snapshot import Place, SessionSnapshot
from contextstash_storage.records import KeptState, Message


def turn_of(snapshot: SessionSnapshot, message: Message, handles: Mapping[Place, str]) -> Turn:
    """A recorded message with its full texts; `handles` are those of the session's outputs by their places."""
    places = range(len(message.blocks))
    texts = snapshot.format.read(message.body or {}).texts or ("",)
    return Turn(
        seq=message.seq,
        role=message.role,
        kind=message.kind,
        blocks=message.blocks,
        texts=shown_texts(snapshot.settings, message.role, message.blocks, texts),
        handles={block: handles[message.seq, block] for block in places if (message.seq, block) in handles},
    )


class SessionTurns:
    """The turns of a session as of a snapshot, with their full texts, even if the view shows them shortened; without
    the calls of our own tools and replies that a client wrote itself."""

    def __init__(self, access: Access, snapshot: SessionSnapshot) -> None:
        self.access = access
        self.snapshot = snapshot
        self._made: dict[int, Turn] = {}
        self._unseen: set[int] = set()
        self._of_user: tuple[int, int, list[int]] = (0, -1, [])
        self._left = [edit.span for edit in rewinds_in_force(snapshot.edits)]

    @property
    def last_seq(self) -> int:
        """The position of the session's newest message."""
        return self.snapshot.session.counters.messages - 1

    def is_left(self, seq: int) -> bool:
        """Whether a message is on a branch that the conversation has left."""
        return any(first <= seq <= last for first, last in self._left)

    async def between(self, first: int, last: int) -> tuple[Turn, ...]:
        """The turns of the messages from `first` to `last` that the model was shown, but not those of a hidden branch,
        also if a summary covers them."""
        wanted = [seq for seq in range(first, last + 1) if not self.is_left(seq)]
        await self._read(wanted)
        return conversation_of(self._made[seq] for seq in wanted if seq not in self._unseen)

    async def at(self, seqs: Iterable[int]) -> tuple[Turn, ...]:
        """The turns of these messages, in order."""
        wanted = sorted(set(seqs))
        await self._read(wanted)
        return conversation_of(self._made[seq] for seq in wanted)

    async def of_user(self, first: int, last: int) -> tuple[Turn, ...]:
        """The turns in a range that tell what the user said, and what it was said to. Of few messages all are read, of
        more only those that may hold the user's words."""
        if last - first < MAX_READ:
            return await self.between(first, last)
        known_first, known_last, found = self._of_user
        if not known_first <= first <= last <= known_last:
            found = await self._spoken(first, last)
            self._of_user = (first, last, found)
        return await self.at(seq for seq in found if first <= seq <= last)

    async def _spoken(self, first: int, last: int) -> list[int]:
        wanted, calls, said = set[int](), dict[str, int](), set[int]()
        async for message in self.access.shown_messages(self.snapshot.session, first, last):
            if self.is_left(message.seq):
                continue
            if message.role == "assistant":
                said = {message.seq}
            for block in message.blocks:
                if block.type == "text" and message.role == "user":
                    wanted |= {message.seq} | said
                elif block.type == "tool_call" and block.call_id:
                    calls[block.call_id] = message.seq
                elif block.type == "tool_result" and (block.is_error or is_dialog(block.tool or "")):
                    # The user may have spoken in it.
                    wanted |= {message.seq, calls.get(block.call_id or "", message.seq)}
        return sorted(wanted)

    async def _read(self, wanted: Sequence[int]) -> None:
        missing = [seq for seq in wanted if seq not in self._made]
        if not missing:
            return
        recorded = await self.access.messages_at(self.snapshot, missing)
        self._unseen |= {message.seq for message in recorded if not message.agent_visible}
        handles = self.snapshot.handles
        # Of messages that the view does not show; most have no output.
        with_outputs = [each.seq for each in recorded if any(block.type == "tool_result" for block in each.blocks)]
        hidden = [seq for seq in with_outputs if seq not in self.snapshot.messages_with_bodies]
        if hidden:
            store, session_id = self.access.store, self.snapshot.session_id
            outputs = await store.read_outputs(session_id, first=hidden[0], last=hidden[-1])
            handles = {**handles, **{(output.seq, output.block): output.handle for output in outputs}}
        made = await asyncio.to_thread(lambda: [turn_of(self.snapshot, message, handles) for message in recorded])
        self._made |= {turn.seq: turn for turn in made}


MAX_READ = 1_500
"""How many new messages are read, the newest, and from how many a model writes a summary. A window of 200,000 tokens
holds fewer, so only a session which was never reduced has more; each takes about a millisecond."""

OPENING = 50
"""How many of the first messages are read in addition: they say what the task is."""

HISTORY_MESSAGES = 400
"""From how many of the newest messages the texts of files in use are taken. Measured with bench/fidelity: 300
keep nearly as much as all; the limit bounds the work in a long session."""


@cache
def _adapter() -> TypeAdapter[State]:
    return TypeAdapter(State)


async def state_at(turns: SessionTurns, last_seq: int) -> State:
    """The state of the session after message `last_seq`."""
    known = await _kept(turns.access, turns.snapshot, last_seq)
    first = known.seq + 1 if known else 0
    start = max(first, last_seq - MAX_READ + 1)
    spoken = [turn for turn in await turns.of_user(first, last_seq) if turn.seq < start]
    new = await turns.between(start, last_seq)
    return await asyncio.to_thread(fold, [*spoken, *new], known)


async def _kept(access: Access, snapshot: SessionSnapshot, last_seq: int) -> State | None:
    """The state that was kept; None if it is of a later message or of a branch that the conversation has left."""
    note = await access.store.get_note(snapshot.session_id, KeptState)
    try:
        state = _adapter().validate_json(note.text) if note is not None else None
    except ValidationError:
        return None
    if note is None or state is None or state.seq > last_seq:
        return None
    rewinds = rewinds_in_force(snapshot.edits)
    new = [edit for edit in rewinds if edit.edit_id not in note.rewinds]
    gone = set(note.rewinds) - {edit.edit_id for edit in rewinds}
    return None if gone or any(edit.first_seq <= state.seq for edit in new) else state


async def keep_state(access: Access, snapshot: SessionSnapshot, state: State) -> None:
    """Keep a state for the next compaction, unless a call still runs: its result comes with a later message."""
    if any(each.text.endswith(WAITS) for each in state.calls):
        return
    rewinds = tuple(edit.edit_id for edit in rewinds_in_force(snapshot.edits))
    text = await asyncio.to_thread(lambda: _adapter().dump_json(state).decode())
    await access.store.put_note(snapshot.session_id, KeptState(text=text, rewinds=rewinds))
