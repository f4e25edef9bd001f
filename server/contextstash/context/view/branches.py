"""Branches: a conversation goes back to an earlier message and on from there; the way it left stays stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from contextstash_storage.records import Cover, Edit, RestoreEdit, RewindEdit, SummaryEdit

HOST = "host"
"""The strategy of edits that follow what a client or program did to its own conversation."""

AS_NEW: dict[str, object] = {"edit_id": 0, "created_at": None, "delta": {}, "view_messages": 0, "view_results": 0}
"""What an edit that is made once more begins with."""


@dataclass(frozen=True, slots=True)
class KnownPath:
    """How far a list of messages is stored along one branch: at which positions."""

    seqs: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.seqs)

    @property
    def last(self) -> int:
        """The position of the last one that is stored, -1 if none is."""
        return self.seqs[-1] if self.seqs else -1


def known_path(edits: Iterable[Edit], stored: Sequence[bytes], listed: Sequence[bytes]) -> KnownPath:
    """The longest way from the beginning on which the stored messages are the listed ones, by their fingerprints. Of
    two equal ones the newer is taken."""
    parents = _parents(edits)
    after = _followers(parents, len(stored))
    last = -1
    front = [last]
    for mark in listed:
        front = [seq for at in front for seq in after(at) if stored[seq] == mark]
        if not front:
            break
        last = max(front)
    return KnownPath(tuple(sorted(_way(parents, last))))


def path_to(edits: Iterable[Edit], last: int) -> frozenset[int]:
    """The messages that `last` descends from, itself among them."""
    return frozenset(_way(_parents(edits), last))


def _way(parents: Mapping[int, int], last: int) -> Iterator[int]:
    """A message and those that it descends from, the nearest first."""
    while last >= 0:
        yield last
        last = parents.get(last, last - 1)


def _parents(edits: Iterable[Edit]) -> dict[int, int]:
    """What the messages descend from that do not descend from their neighbour. The message after a rewind descends from
    the one before what that hid, unless the rewind was undone before the message came."""
    parents: dict[int, int] = {}
    live: dict[int, tuple[int, int]] = {}
    for edit in edits:
        if isinstance(edit, RewindEdit):
            live[edit.edit_id] = edit.span
            parents[edit.last_seq + 1] = edit.first_seq - 1
        elif isinstance(edit, RestoreEdit):
            for undone in edit.undoes:
                live.pop(undone, None)
            if edit.seq is not None:  # the next message, not stored yet, has another parent now
                starts = [first for first, last in live.values() if last + 1 == edit.seq]
                parents[edit.seq] = min(starts, default=edit.seq) - 1
    return parents


def _followers(parents: Mapping[int, int], messages: int) -> Callable[[int], list[int]]:
    """Returns, for a message, the ones that descend directly from it."""
    branching: dict[int, list[int]] = {}
    for seq, parent in parents.items():
        if seq < messages:
            branching.setdefault(parent, []).append(seq)

    def after(seq: int) -> list[int]:
        neighbour = seq + 1
        straight = [neighbour] if neighbour < messages and neighbour not in parents else []
        return straight + branching.get(seq, [])

    return after


def rewinding(edits: Sequence[Edit], messages: int, last: int) -> list[Edit]:
    """The edits after which a view of `messages` messages goes on after message `last`: the way there is shown, what
    was left is not. No edits if it does so already."""
    path = path_to(edits, last)
    live, given_back = _live(edits)
    covers = [edit for edit in live if isinstance(edit, SummaryEdit | RewindEdit)]
    undone = [cover for cover in covers if not _stands(cover, path)]
    standing = [cover.span for cover in covers if isinstance(cover, RewindEdit) and cover not in undone]
    shown = {cover.summary_id for cover in covers if isinstance(cover, SummaryEdit)}
    again = [
        edit.model_copy(update=AS_NEW)
        for edit in given_back
        if isinstance(edit, SummaryEdit)
        and edit.strategy == HOST
        and _stands(edit, path)
        and edit.summary_id not in shown
    ]
    left = [
        RewindEdit(first_seq=first, last_seq=end)
        for first, end in _gaps(path, messages)
        if not any(start <= first and end <= stop for start, stop in standing)
    ]
    return [*restored(undone, at=messages), *again[-1:], *left]


def restored(edits: Sequence[Cover], *, at: int | None = None) -> list[RestoreEdit]:
    """The edit that undoes these; `at` is the position of the next message, if the conversation goes on elsewhere."""
    if not edits:
        return []
    return [RestoreEdit(strategy=HOST, seq=at, undoes=tuple(edit.edit_id for edit in edits))]


def _live(edits: Iterable[Edit]) -> tuple[list[Edit], list[Edit]]:
    """The edits that no restore undid, those that others hide included, and those that a client's own doing undid."""
    live: dict[int, Edit] = {}
    given_back: list[Edit] = []
    for edit in edits:
        live[edit.edit_id] = edit
        if isinstance(edit, RestoreEdit):
            undone = [live.pop(number) for number in edit.undoes if number in live]
            given_back += undone if edit.strategy == HOST else []
    return list(live.values()), given_back


def _stands(cover: Cover, path: frozenset[int]) -> bool:
    """Whether a rewind hides nothing, or a summary was written, on the way."""
    if isinstance(cover, RewindEdit):
        return path.isdisjoint(range(cover.first_seq, cover.last_seq + 1))
    return (cover.last_seq if cover.seq is None else cover.seq) in path


def _gaps(path: frozenset[int], messages: int) -> list[tuple[int, int]]:
    """The runs of messages that are not on the way."""
    gaps: list[tuple[int, int]] = []
    for seq in range(messages):
        if seq in path:
            continue
        if gaps and gaps[-1][1] == seq - 1:
            gaps[-1] = (gaps[-1][0], seq)
        else:
            gaps.append((seq, seq))
    return gaps
