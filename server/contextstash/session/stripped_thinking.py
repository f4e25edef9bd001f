"""Thinking: strips the model's thinking that an edit of earlier messages invalidates; a restore brings it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contextstash.results import ThinkingChange
from contextstash.safety.sanitize import USER_BLOCK
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.view.thinking_blocks import DROP_REQUEST, ThinkingEffect, thinking_effect
from contextstash.view.view import Entry, difference
from contextstash.window.reasoning_binding import CLAUDE, reasoning_binding
from contextstash.window.settings import ContextSettings
from contextstash.window.thresholds import level_of
from contextstash_storage.records import Cover, DigestEdit, Replacement, StripEdit, SummaryEdit

Undone = Replacement | Cover | DigestEdit
"""An edit that a restore can undo."""


@dataclass(frozen=True)
class Stripping:
    """The choice for the thinking after an edit whose first changed message is `first_seq`."""

    effect: ThinkingEffect
    first_seq: int

    @property
    def waits(self) -> bool:
        """Whether the edit should wait, because now it would cost more than it saves."""
        return self.effect.choice == "wait"

    @property
    def result(self) -> ThinkingChange | None:
        """For the tool's result; None if the edit affects no thinking."""
        effect = self.effect
        if effect.choice == "none":
            return None
        return ThinkingChange(
            messages=len(effect.broken_seqs), tokens=effect.broken_tokens, choice=effect.choice, reason=effect.reason
        )

    def edits(self, snapshot: SessionSnapshot, entries: Sequence[Entry], handles: Sequence[str]) -> list[StripEdit]:
        """The edit that strips the thinking from the view `entries`; empty unless that was chosen."""
        if self.effect.choice != "strip":
            return []
        return strip_from(snapshot, entries, self.first_seq, handles)


def stripping_from(first_seq: int) -> Stripping:
    """The choice to strip all thinking from this message on."""
    return Stripping(ThinkingEffect(choice="strip"), first_seq)


def binds(settings: ContextSettings, model: str | None) -> bool:
    """Whether what was sent must stay as it was until a compaction, for the sake of later reasoning."""
    return settings.thinking != "keep" and reasoning_binding(model) is not None


def _binds(snapshot: SessionSnapshot) -> bool:
    return binds(snapshot.settings, snapshot.session.model)


def plan_stripping(snapshot: SessionSnapshot, first_seq: int, *, needed: bool = False) -> Stripping:
    """The thinking that an edit invalidates whose first changed message is `first_seq`. One that is `needed`, or made
    while the window is almost full, does not wait for the end of a tool loop."""
    messages = [entry.message for entry in snapshot.entries if entry.message and not entry.stripped]
    effect = thinking_effect(
        messages,
        first_seq,
        bound=_binds(snapshot),
        choice=snapshot.settings.thinking,
        needed=needed or level_of(snapshot.view_tokens, snapshot.budget) in ("critical", "overflow"),
    )
    return Stripping(effect, first_seq)


def strips_of(snapshot: SessionSnapshot, undone: Sequence[Undone]) -> list[StripEdit]:
    """The strips that are no longer needed once these edits are undone."""
    in_force = _names((*snapshot.overlay.replaced.values(), *snapshot.overlay.covers)) - _names(undone)
    return [strip for strip in snapshot.overlay.strips if not in_force & set(strip.handles)]


def strips_after_restore(
    snapshot: SessionSnapshot, entries: Sequence[Entry], undone: Sequence[Undone]
) -> list[StripEdit]:
    """The strips for the thinking that a restore itself invalidates: thinking written after the edits that it undoes.
    `entries` is the view after the restore."""
    if not _binds(snapshot) or not undone:
        return []
    # The user's words stand before all messages, and are undone only with a summary.
    first = min(_written_at(edit) for edit in undone if not _is_words(edit))
    names = _names(undone)
    known = [strip.last_seq for strip in snapshot.overlay.strips if names & set(strip.handles)]
    start = max(known, default=first) + 1
    return strip_after(snapshot, entries, start)


def strips_when_changed(snapshot: SessionSnapshot) -> bool:
    """Whether thinking after messages that are left out is stripped."""
    return snapshot.settings.thinking in ("auto", "strip") and _binds(snapshot)


def request_fields(snapshot: SessionSnapshot, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """The fields that a request needs so that the API drops thinking invalidated by edits; None if it needs none."""
    if snapshot.settings.thinking not in ("auto", "drop") or reasoning_binding(snapshot.session.model) is not CLAUDE:
        return None
    changed = [entry.first_seq for entry in entries if entry.message is None or entry.replaced]
    if not changed or not any(
        _thinks(entry) and not entry.stripped for entry in entries if entry.first_seq > changed[0]
    ):
        return None
    return DROP_REQUEST


def strip_after(snapshot: SessionSnapshot, entries: Sequence[Entry], first_seq: int) -> list[StripEdit]:
    """The edit that strips the thinking of a view from this message on; empty if there is none."""
    has_thinking = any(
        entry.message and not entry.stripped and entry.first_seq >= first_seq and _thinks(entry) for entry in entries
    )
    return strip_from(snapshot, entries, first_seq, ()) if has_thinking else []


def _thinks(entry: Entry) -> bool:
    return entry.message is not None and any(block.type == "thinking" for block in entry.message.blocks)


def _names(edits: Sequence[Undone]) -> set[str]:
    """The handles by which strips refer to these edits."""
    archived = {edit.handle for edit in edits if isinstance(edit, Replacement)}
    return archived | {edit.summary_id for edit in edits if isinstance(edit, SummaryEdit)}


def _is_words(edit: Undone) -> bool:
    return isinstance(edit, DigestEdit) and edit.text.startswith(USER_BLOCK)


def _written_at(edit: Undone) -> int:
    """The message from which on the model's thinking may be based on the edit."""
    if isinstance(edit, Replacement):
        return edit.seq
    by_client = edit.seq if isinstance(edit, SummaryEdit) else None
    return edit.span[1] if by_client is None else by_client


def strip_from(
    snapshot: SessionSnapshot,
    entries: Sequence[Entry],
    first_seq: int,
    handles: Sequence[str],
) -> list[StripEdit]:
    """The edit that strips the thinking of the view `entries` from this message on; none if no message is there."""
    last = snapshot.session.counters.messages - 1
    if first_seq > last:
        return []
    edit = StripEdit(first_seq=first_seq, last_seq=last, handles=tuple(handles))
    stripped = [
        Entry(message=entry.message, replaced=entry.replaced, stripped=True)
        if entry.message and first_seq <= entry.first_seq <= last
        else entry
        for entry in entries
    ]
    return [edit.model_copy(update=difference(entries, stripped))]
