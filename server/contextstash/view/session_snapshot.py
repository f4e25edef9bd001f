"""A session at one moment: its edits, its view, its outputs, and the numbers in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from contextstash.messages.base import Format
from contextstash.view import session_counters as counting
from contextstash.view.branches import rewinds_in_force
from contextstash.view.view import Entry, Overlay, parts_of, results_of, total_tokens
from contextstash.window.settings import ContextSettings
from contextstash.window.thresholds import WindowBudget
from contextstash.window.token_counters import Counter
from contextstash_storage.records import Counters, Edit, Event, EventKind, Message, Output, Part, Session

Place = tuple[int, int]
"""The place of an output: the position of its message, and the index of its block."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """Messages of the view beyond the reach, `first_seq..last_seq`: how many they are, how many tool results they show,
    and their tokens by part."""

    first_seq: int
    last_seq: int
    messages: int
    results: int
    parts: Mapping[Part, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class SessionSnapshot:
    """The session at one moment, from which every use case that changes a view starts. `proxied` says of a followed
    client that our proxy makes the edits in what it sends. `entries` are those within the reach of a request, if that
    was enough to read; `beyond` are then the older ones, after the system messages at the head."""

    session: Session
    settings: ContextSettings
    find_budget: Callable[[], WindowBudget]
    counter: Counter
    format: Format
    edits: tuple[Edit, ...]
    overlay: Overlay
    entries: tuple[Entry, ...]
    outputs: Mapping[Place, Output]
    proxied: bool = False
    beyond: Beyond | None = None

    @cached_property
    def budget(self) -> WindowBudget:
        """The window and the numbers that follow from it. Found when it is first asked for: the table of models and
        their windows takes a twentieth of a client's compaction to load."""
        return self.find_budget()

    @property
    def session_id(self) -> str:
        return self.session.session_id

    @property
    def followed(self) -> bool:
        """Whether a client sends its own history, which is read from its transcript."""
        return self.session.source is not None

    @cached_property
    def view_tokens(self) -> int:
        """Tokens of the whole view by our count."""
        return total_tokens(self.entries) + (self.beyond.tokens if self.beyond else 0)

    @cached_property
    def unanswered(self) -> int:
        """How many calls of the view have no result."""
        return max(0, sum([entry.open_calls for entry in self.entries]))

    @cached_property
    def estimate(self) -> tuple[int, str]:
        """The tokens of our view as a request with it would take them, and how they were determined."""
        return counting.estimate(self.session.counters, self.settings, self.counter.name)

    @property
    def own_tokens(self) -> int:
        """The same as thresholds look at it."""
        return counting.own_tokens(self.session, self.settings)

    @property
    def view_messages(self) -> int:
        """Entries of the whole view."""
        return len(self.entries) + (self.beyond.messages if self.beyond else 0)

    @cached_property
    def messages_with_bodies(self) -> Mapping[int, Message]:
        """The messages of the view that were read with their bodies, by position."""
        messages = [entry.message for entry in self.entries if entry.message is not None]
        return {message.seq: message for message in messages if message.body is not None}

    def changed_since(self, output: Output) -> int | None:
        """The message of the newest change of the file that an output shows, if that came after it; None if it shows no
        file, or if no call changed it by its name."""
        from contextstash.view.outputs_in_use import (  # a hook, which has no view, needs no events
            paths_read,
            shows_file,
        )

        changes = (self._changes.get(path, -1) for path in paths_read(output)) if shows_file(output) else ()
        newest = max(changes, default=-1)
        return newest if newest > output.seq else None

    @cached_property
    def _changes(self) -> Mapping[str, int]:
        """The message of the newest change of each file, by the paths that calls name it with."""
        from contextstash.view.outputs_in_use import paths_changed

        newest: dict[str, int] = {}
        for output in self.outputs.values():
            for path in () if output.is_error else paths_changed(output):
                newest[path] = max(output.seq, newest.get(path, -1))
        return newest

    @cached_property
    def pinned(self) -> Mapping[Place, Output]:
        """The pinned outputs of the session; without those of a branch that the conversation has left. They are neither
        archived nor cut as long as anything else can be; if a summary replaces their message, they follow it."""
        if not self.settings.pin:
            return {}
        from contextstash.view.outputs_in_use import outputs_of_pins

        return {
            (output.seq, output.block): output for output in outputs_of_pins(self.settings.pin, self.current_outputs)
        }

    @cached_property
    def unpinned(self) -> Mapping[Place, Output]:
        """The outputs that a reduction may replace."""
        pinned = self.pinned
        return (
            {place: output for place, output in self.outputs.items() if place not in pinned} if pinned else self.outputs
        )

    def counters_after(self, entries: Sequence[Entry], *, own: bool = True) -> Callable[[Counters], Counters]:
        """What edits make of the counters after which the view has these entries: what the entries add up to, and what
        was recorded since the snapshot. `own` edits are ours, others follow the client's."""
        planned, beyond = self.session.counters, beyond_after(self, entries)
        after = counting.Totals(
            counted_parts(entries, beyond),
            len(entries) + (beyond.messages if beyond else 0),
            results_of(entries) + (beyond.results if beyond else 0),
            max((entry.last_seq for entry in entries if entry.summary), default=-1),
        )
        return lambda counters: counting.edited(counters, planned, after, own=own)

    @cached_property
    def handles(self) -> Mapping[Place, str]:
        """The handles of the outputs by their places."""
        return {place: output.handle for place, output in self.outputs.items()}

    @property
    def current_outputs(self) -> list[Output]:
        """The outputs in order, without those of branches that the conversation has left."""
        left = [edit.span for edit in rewinds_in_force(self.edits)]
        return [
            output
            for _, output in sorted(self.outputs.items())
            if not any(first <= output.seq <= last for first, last in left)
        ]

    @property
    def client_tokens(self) -> int | None:
        """What the followed client sends, None if it sends our view."""
        if not self.followed or self.proxied:
            return None
        counters = self.session.counters
        return counting.estimate(counters, self.settings, self.counter.name, followed=True)[0]


def event_of(
    snapshot: SessionSnapshot, entries: Sequence[Entry], kind: EventKind, reason: str, *, seconds: float = 0.0
) -> Event:
    """An event for the session's log: what was done to the view. `entries` are those of the view afterwards; what is
    beyond the snapshot's reach is unchanged, unless a summary covers it."""
    beyond = beyond_after(snapshot, entries)
    return Event(
        kind=kind,
        tokens_before=snapshot.view_tokens,
        tokens_after=total_tokens(entries) + (beyond.tokens if beyond else 0),
        messages_before=snapshot.view_messages,
        messages_after=len(entries) + (beyond.messages if beyond else 0),
        reason=reason,
        seq=snapshot.session.counters.messages,
        parts=_parts(snapshot, entries, beyond),
        duration_ms=round(1000 * seconds, 2),
    )


def beyond_after(snapshot: SessionSnapshot, entries: Sequence[Entry]) -> Beyond | None:
    """What is beyond the reach of a snapshot and still in the view, which has these entries now."""
    beyond = snapshot.beyond
    covered = beyond is not None and any(
        entry.summary is not None and entry.first_seq <= beyond.first_seq and beyond.last_seq <= entry.last_seq
        for entry in entries
    )
    return None if covered else beyond


def _parts(snapshot: SessionSnapshot, entries: Sequence[Entry], beyond: Beyond | None) -> dict[str, int]:
    """The tokens in the window by part, including what was never recorded."""
    tokens, _ = counting.estimate(
        snapshot.session.counters, snapshot.settings, snapshot.counter.name, followed=snapshot.followed
    )
    parts_now = counting.breakdown(snapshot.session.counters, tokens, followed=snapshot.followed)
    counted = counted_parts(entries, beyond)
    parts = {str(part): tokens for part, tokens in sorted(counted.items()) if tokens}
    return {**parts, "unrecorded": parts_now["unrecorded"]} if "unrecorded" in parts_now else parts


def counted_parts(entries: Sequence[Entry], beyond: Beyond | None) -> dict[Part, int]:
    """The tokens of a view by part, also of what is beyond the reach."""
    counted = parts_of(entries)
    for part, tokens in beyond.parts.items() if beyond else ():
        counted[part] = counted.get(part, 0) + tokens
    return counted
