"""A session at one moment: its edits, its view, its outputs, and the numbers in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextstash.context.view.view import Entry, Overlay, parts_of, total_tokens
from contextstash.context.window import estimate as counting
from contextstash.context.window.settings import ContextSettings
from contextstash.context.window.thresholds import WindowBudget
from contextstash.context.window.token_counters import Counter
from contextstash.formats.base import Format
from contextstash_storage.records import Edit, Event, EventKind, Output, RewindEdit, Session

Place = tuple[int, int]
"""The place of an output: the position of its message, and the index of its block."""


@dataclass(frozen=True)
class SessionSnapshot:
    """The session at one moment, from which every use case that changes a view starts. `proxied` says of a followed
    client that our proxy makes the edits in what it sends."""

    session: Session
    settings: ContextSettings
    budget: WindowBudget
    counter: Counter
    format: Format
    edits: tuple[Edit, ...]
    overlay: Overlay
    entries: tuple[Entry, ...]
    outputs: Mapping[Place, Output]
    proxied: bool = False

    @property
    def session_id(self) -> str:
        return self.session.session_id

    @property
    def followed(self) -> bool:
        """Whether a client sends its own history, which is read from its transcript."""
        return self.session.source is not None

    @property
    def current_outputs(self) -> list[Output]:
        """The outputs in order, without those of branches that the conversation has left."""
        left = [edit.span for edit in self.edits if isinstance(edit, RewindEdit)]
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
    """An event for the session's log: what was done to the view. `entries` are those of the view afterwards."""
    return Event(
        kind=kind,
        tokens_before=total_tokens(snapshot.entries),
        tokens_after=total_tokens(entries),
        messages_before=len(snapshot.entries),
        messages_after=len(entries),
        reason=reason,
        seq=snapshot.session.counters.messages,
        parts=_parts(snapshot, entries),
        duration_ms=round(1000 * seconds, 2),
    )


def _parts(snapshot: SessionSnapshot, entries: Sequence[Entry]) -> dict[str, int]:
    """The tokens in the window by part, including what was never recorded."""
    tokens, _ = counting.estimate(
        snapshot.session.counters, snapshot.settings, snapshot.counter.name, followed=snapshot.followed
    )
    parts_now = counting.breakdown(snapshot.session.counters, tokens, followed=snapshot.followed)
    parts = {str(part): tokens for part, tokens in sorted(parts_of(entries).items()) if tokens}
    return {**parts, "unrecorded": parts_now["unrecorded"]} if "unrecorded" in parts_now else parts
