"""Branches: a conversation goes back to an earlier message and continues from there; the old branch stays stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from contextstash_storage.records import Cover, DigestEdit, Edit, RestoreEdit, RewindEdit, SummaryEdit

HOST = "host"
"""The strategy of edits that repeat what a client or a program did to its own conversation."""


def known_path(edits: Iterable[Edit], stored: Sequence[bytes], listed: Sequence[bytes]) -> tuple[int, ...]:
    """The positions of the stored messages that are equal to the beginning of a list, by their fingerprints, along one
    branch. Of two paths of the same length the newer one is returned."""
    parents = _parents(edits)
    branching: dict[int, list[int]] = {}
    for seq, parent in parents.items():
        if seq < len(stored):
            branching.setdefault(parent, []).append(seq)

    def after(seq: int) -> list[int]:
        """The messages that descend directly from this one."""
        straight = [seq + 1] if seq + 1 < len(stored) and seq + 1 not in parents else []
        return straight + branching.get(seq, [])

    last = -1
    ends = [last]
    for fingerprint in listed:
        ends = [seq for at in ends for seq in after(at) if stored[seq] == fingerprint]
        if not ends:
            break
        last = max(ends)
    return tuple(sorted(_ancestors(parents, last)))


def path_to(edits: Iterable[Edit], last: int) -> frozenset[int]:
    """The message `last` and those that it descends from."""
    return frozenset(_ancestors(_parents(edits), last))


def rewinds_in_force(edits: Iterable[Edit]) -> list[RewindEdit]:
    """The rewinds that hide a branch which the conversation has left and not gone back to."""
    return [edit for edit in _live(edits)[0] if isinstance(edit, RewindEdit)]


def _ancestors(parents: Mapping[int, int], last: int) -> Iterator[int]:
    """A message and those that it descends from, the nearest first."""
    while last >= 0:
        yield last
        last = parents.get(last, last - 1)


def _parents(edits: Iterable[Edit]) -> dict[int, int]:
    """The parents of the messages whose parent is not the message before them. The message after a rewind descends from
    the one before what the rewind hid, unless the rewind was undone before that message was recorded."""
    parents: dict[int, int] = {}
    live: dict[int, tuple[int, int]] = {}
    for edit in edits:
        if isinstance(edit, RewindEdit):
            live[edit.edit_id] = edit.span
            parents[edit.last_seq + 1] = edit.first_seq - 1
        elif isinstance(edit, RestoreEdit):
            for undone in edit.undoes:
                live.pop(undone, None)
            if edit.seq is not None:  # the next message, which is not stored yet, gets another parent
                starts = [first for first, last in live.values() if last + 1 == edit.seq]
                parents[edit.seq] = min(starts, default=edit.seq) - 1
    return parents


def rewinding(edits: Sequence[Edit], messages: int, last: int) -> list[Edit]:
    """The edits after which a view of `messages` messages continues after message `last`: its path is shown, the other
    branches are hidden. No edits if the view does so already."""
    path = path_to(edits, last)
    live, undone_by_host = _live(edits)
    covers = [edit for edit in live if isinstance(edit, SummaryEdit | RewindEdit)]
    undone = [cover for cover in covers if not _applies(cover, path)]
    standing = [cover.span for cover in covers if isinstance(cover, RewindEdit) and cover not in undone]
    shown = {cover.summary_id for cover in covers if isinstance(cover, SummaryEdit)}
    again = [
        edit.model_copy(update={"edit_id": 0, "created_at": None})
        for edit in undone_by_host
        if isinstance(edit, SummaryEdit)
        and edit.strategy == HOST
        and _applies(edit, path)
        and edit.summary_id not in shown
    ]
    off_path = enumerate(seq for seq in range(messages) if seq not in path)
    runs = [[seq for _, seq in run] for _, run in groupby(off_path, key=lambda each: each[1] - each[0])]
    hidden = [
        RewindEdit(first_seq=run[0], last_seq=run[-1])
        for run in runs
        if not any(start <= run[0] and run[-1] <= stop for start, stop in standing)
    ]
    gone = {cover.summary_id for cover in undone if isinstance(cover, SummaryEdit)}
    words = [edit for edit in live if isinstance(edit, DigestEdit) and set(edit.handles) <= gone]
    return [*restored([*undone, *words], at=messages), *again[-1:], *hidden]


def restored(edits: Sequence[Cover | DigestEdit], *, at: int | None = None) -> list[RestoreEdit]:
    """The edit that undoes these; `at` is the position of the next message, if the conversation changes its branch."""
    if not edits:
        return []
    return [RestoreEdit(strategy=HOST, seq=at, undoes=tuple(edit.edit_id for edit in edits))]


def _live(edits: Iterable[Edit]) -> tuple[list[Edit], list[Edit]]:
    """The edits that no restore has undone, including hidden ones; and those that the client itself undid."""
    live: dict[int, Edit] = {}
    undone_by_host: list[Edit] = []
    for edit in edits:
        live[edit.edit_id] = edit
        if isinstance(edit, RestoreEdit):
            undone = [live.pop(number) for number in edit.undoes if number in live]
            undone_by_host += undone if edit.strategy == HOST else []
    return list(live.values()), undone_by_host


def _applies(cover: Cover, path: frozenset[int]) -> bool:
    """Whether a cover is right for a path: a rewind if it hides nothing of it, a summary if it was written on it."""
    if isinstance(cover, RewindEdit):
        return path.isdisjoint(range(cover.first_seq, cover.last_seq + 1))
    return (cover.last_seq if cover.seq is None else cover.seq) in path
