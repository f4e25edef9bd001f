"""Law 7 against a model: whatever is repeated, interrupted, rewound or raced, the history is a plain list."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.stash import Stash
from contextstash_storage import append, store
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Native
from contextstash_storage.sqlite import open_sqlite
from tests.support.effort import examples
from tests.support.stashes import SESSION

WORDS = ("go", "continue", "yes", "no", "stop")
"""So few that most messages equal others."""

Words = tuple[str, ...]


def natives(words: Sequence[str]) -> list[Native]:
    return [{"role": "user", "content": word} for word in words]


@dataclass
class Model:
    """The conversation as a tree: words, each with its parent, and the current tip."""

    words: list[str] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    tip: int = -1

    def append(self, words: Sequence[str]) -> None:
        for word in words:
            self.words.append(word)
            self.parents.append(self.tip)
            self.tip = len(self.words) - 1

    def branch(self) -> list[int]:
        """The positions from the beginning to the tip."""
        path: list[int] = []
        at = self.tip
        while at >= 0:
            path.insert(0, at)
            at = self.parents[at]
        return path

    def conversation(self) -> Words:
        return tuple(self.words[seq] for seq in self.branch())

    def become(self, words: Sequence[str]) -> None:
        """`words` are the whole conversation: continue from the longest known prefix."""
        level, known = [-1], 0
        self.tip = -1
        for word in words:
            level = [seq for seq, parent in enumerate(self.parents) if parent in level and self.words[seq] == word]
            if not level:
                break
            known += 1
            self.tip = max(level)
        self.append(words[known:])


@dataclass(frozen=True)
class Step:
    """One recording. `how`: how the batch is identified; `then`: sent once, sent again, interrupted and sent again, or
    sent by two processes at once."""

    how: str
    then: str
    words: Words
    keep: int


steps = st.builds(
    Step,
    how=st.sampled_from(["plain", "first_seq", "batch_id", "whole", "whole", "branch"]),
    then=st.sampled_from(["once", "once", "again", "interrupted", "race"]),
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(tuple),
    keep=st.integers(0, 12),
)


class Sessions:
    """Two stashes on one file, as two processes have them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stashes: list[Stash] = []

    async def open(self) -> None:
        while len(self.stashes) < 2:
            self.stashes.append(Stash(await open_sqlite(self._path), settings={"automatic": False}))

    async def close(self) -> None:
        for stash in self.stashes:
            await stash.close()

    async def interrupt(self, messages: list[Native], identity: dict[str, Any], after: int) -> None:
        """Close the first stash as soon as some of the messages are stored."""
        first, second = self.stashes
        begun = await length(second)
        task = asyncio.create_task(first.record_messages(messages, session_id=SESSION, **identity))
        while not task.done() and await length(second) < begun + after:  # noqa: ASYNC110 - another process would poll
            await asyncio.sleep(0)
        await first.close()
        await asyncio.gather(task, return_exceptions=True)
        del self.stashes[0]
        await self.open()

    async def recorded(self) -> tuple[list[str], list[int]]:
        """The words of the history, and the positions that the view shows."""
        access = self.stashes[0]
        read = await access.store.read_messages(SESSION)
        snapshot = await access.snapshot(SESSION)
        words = [str((message.body or {})["content"]) for message in read]
        shown = [entry.first_seq for entry in snapshot.entries]
        assert snapshot.session.counters.view_messages == len(shown)
        assert snapshot.session.counters.view_tokens == sum(entry.tokens for entry in snapshot.entries)
        return words, shown


async def length(stash: Stash) -> int:
    try:
        return (await stash.read_session(SESSION)).counters.messages
    except SessionNotFoundError:
        return 0


def identity_of(step: Step, number: int, model: Model, seen: Sequence[Words]) -> tuple[Words, dict[str, Any]]:
    """What is sent, and the arguments that identify it."""
    if step.how == "first_seq":
        return step.words, {"first_seq": len(model.words)}
    if step.how == "batch_id":
        return step.words, {"batch_id": f"batch {number}"}
    if step.how == "whole":
        return (*model.conversation()[: step.keep], *step.words), {"whole": True}
    if step.how == "branch" and seen:
        return seen[step.keep % len(seen)], {"whole": True}
    return step.words, {}


async def take(step: Step, number: int, sessions: Sessions, model: Model, seen: list[Words]) -> None:
    """Apply the step to the session and to the model."""
    words, identity = identity_of(step, number, model, seen)
    messages = natives(words)

    async def send(place: int) -> None:
        await sessions.stashes[place].record_messages(messages, session_id=SESSION, **identity)

    if identity and step.then == "interrupted":
        await sessions.interrupt(messages, identity, after=step.keep % (len(step.words) + 1))
    if step.then == "race":
        await asyncio.gather(send(0), send(1))
    else:
        await send(0)
    if step.then == "again":
        await send(1)
    if identity.get("whole"):
        model.become(words)
    elif identity:
        model.append(words)
    elif step.then == "race":  # either order, and pieces of one between those of the other
        stored, _ = await sessions.recorded()
        mixed = stored[len(model.words) :]
        assert is_merge(mixed, words, words)
        model.append(mixed)
    else:
        model.append(words * (2 if step.then == "again" else 1))
    seen.append(model.conversation())


def is_merge(mixed: Sequence[str], one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a list holds two others, each in its order, and nothing else."""
    if not mixed:
        return not one and not other
    return any(
        left and left[0] == mixed[0] and is_merge(mixed[1:], left[1:], right)
        for left, right in ((one, other), (other, one))
    )


@pytest.fixture(autouse=True)
def pieces_of_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store each message in a piece of its own, so that short batches can be interrupted too."""
    monkeypatch.setattr(append, "PIECE_SIZE", 0)
    monkeypatch.setattr(store, "BETWEEN_PIECES_SECONDS", 0)


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=1, max_size=8))
async def test_the_history_is_a_plain_list_and_the_view_its_current_branch(taken: list[Step]) -> None:
    model, seen = Model(), list[Words]()
    with TemporaryDirectory() as folder:
        sessions = Sessions(Path(folder) / "s.db")
        await sessions.open()
        try:
            for number, step in enumerate(taken):
                await take(step, number, sessions, model, seen)
                assert await sessions.recorded() == (model.words, model.branch())
        finally:
            await sessions.close()
