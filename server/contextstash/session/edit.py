"""The one frame for edits: read the view, plan, carry out with an event, plan again if another process was faster; and
which bound reasoning an edit of earlier messages invalidates.

Newer models bind each piece of their reasoning to everything before it (`reasoning_binding`). If any of that has
changed when the piece is sent again, the provider refuses it and all later ones, or drops them. Reasoning before the
change stays valid, and so does what the model writes after it; all of it from the change on may be left out. So what
was sent stays as it was sent, and edits come together: at a compaction, which leaves out all reasoning behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import anyio
import anyio.lowlevel

from contextstash.messages.rules import answers_calls
from contextstash.outputs.digest import digest_output
from contextstash.session.access import Access
from contextstash.session.masks import shown_text
from contextstash.view.session_snapshot import SessionSnapshot, event_of, placeholder_of, replacing
from contextstash.view.view import Entry, build_view, edits_in_force, is_user_block, thinking_tokens, untouched
from contextstash.window.models import CLAUDE, reasoning_binding
from contextstash.window.thresholds import level_of
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import (
    ArchiveEdit,
    Cover,
    DigestEdit,
    Edit,
    Event,
    EventKind,
    Message,
    Output,
    Replacement,
    RestoreEdit,
    Session,
    StripEdit,
    SummaryEdit,
)

ATTEMPTS = 5
"""Edits of one session are rare: after so many conflicts in a row the caller gets the error."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Planned(Generic[Result]):
    """Edits of a view, and what is made of them once they are recorded.

    `result` makes what the caller gets from the session and the view after them. `stripping` says which thinking they
    invalidate and so take with them. With a `kind` an event is logged with them, with its reason and the strategy of a
    summary. In a `dry_run` nothing is recorded. `own` is False for edits that only follow a client's."""

    snapshot: SessionSnapshot
    edits: Sequence[Edit]
    result: Callable[[Session, Sequence[Entry]], Result]
    stripping: Stripping | None = None
    kind: EventKind | None = None
    reason: str = ""
    strategy: str | None = None
    dry_run: bool = False
    own: bool = True


@dataclass(frozen=True)
class Archived:
    """An output to archive: the edit, the output, its text without secrets, and in one line what it was."""

    edit: ArchiveEdit
    output: Output
    text: str
    digest: str


def archived(snapshot: SessionSnapshot, outputs: Sequence[tuple[Output, str]]) -> list[Archived]:
    """Outputs with their texts, archived. Each placeholder says in one line what it was, without secrets."""
    described = []
    for output, text in outputs:
        shown = shown_text(snapshot.settings, text)
        digest = digest_output(output.tool, output.argument, shown, output.is_error)
        described.append((output, shown, digest, placeholder_of(snapshot, output, digest)))
    counted = snapshot.counter.count_results([placeholder for *_, placeholder in described])
    return [
        Archived(ArchiveEdit(**replacing(snapshot, output, placeholder, tokens)), output, shown, digest)
        for (output, shown, digest, placeholder), tokens in zip(described, counted, strict=True)
    ]


async def edit(access: Access, plan: Callable[[], Awaitable[Planned[Result] | Result]]) -> Result:
    """Carry out what `plan` finds to do; it reads the view again after an edit conflict. What it returns instead of a
    plan is the result. Raises EditConflictError after ATTEMPTS conflicts."""

    async def attempt() -> Result:
        started = time.perf_counter()
        planned = await plan()
        return await _carry_out(access, planned, started) if isinstance(planned, Planned) else planned

    return await retrying(attempt)


async def _carry_out(access: Access, planned: Planned[Result], started: float) -> Result:
    snapshot, edits = planned.snapshot, list(planned.edits)
    if planned.stripping is not None:
        summaries = [each for each in edits if isinstance(each, SummaryEdit)]
        edits += planned.stripping.edits(snapshot, summaries or edits)
    entries = await entries_after(access, snapshot, edits)
    if planned.dry_run:
        return await asyncio.to_thread(planned.result, snapshot.session, entries)
    event = None
    if planned.kind is not None:
        seconds = time.perf_counter() - started
        event = await asyncio.to_thread(event_of, snapshot, entries, planned.kind, planned.reason, seconds=seconds)
        event = event.model_copy(update={"strategy": planned.strategy})
    change = await asyncio.to_thread(snapshot.counters_after, entries, own=planned.own)
    await anyio.lowlevel.checkpoint_if_cancelled()
    with anyio.CancelScope(shield=True):  # what is being stored is stored: the result must say so
        session = await access.store.change_session(
            snapshot.session_id, change, edits=edits, expected=len(snapshot.edits), logged=event
        )
        result = await asyncio.to_thread(planned.result, session, entries)
    return result  # noqa: RET504 - to the type checker a scope may swallow what is in it


async def log_event(
    access: Access, session: Session, kind: EventKind, before: int, after: int, reason: str, **facts: Any
) -> None:
    """Log what was done to a window of so many tokens before and after, as of this state of the session, where that is
    no edit of our view."""
    seq = session.counters.messages
    event = Event(kind=kind, tokens_before=before, tokens_after=after, reason=reason, seq=seq, **facts)
    await access.store.append_log(session.session_id, event)


async def retrying(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of `attempt`; call it again after an edit conflict. Raises EditConflictError after ATTEMPTS
    calls."""
    for _ in range(ATTEMPTS):
        try:
            return await attempt()
        except EditConflictError:
            continue
    raise EditConflictError("Another process is editing this session at the same time; try again in a moment.")


async def entries_after(access: Access, snapshot: SessionSnapshot, edits: Sequence[Edit]) -> list[Entry]:
    """The view's entries once these edits are appended."""
    if any(isinstance(edit, RestoreEdit) for edit in edits):
        overlay, opened = edits_in_force([*snapshot.edits, *edits]), access.opened(snapshot.session_id)
        spans = overlay.visible_ranges(snapshot.session.counters.messages)
        return build_view(await opened.messages(await opened.now(), spans, bodies=False), overlay)
    return await asyncio.to_thread(changed_entries, snapshot, edits)


def changed_entries(snapshot: SessionSnapshot, edits: Sequence[Edit]) -> list[Entry]:
    """The same for edits that bring nothing back."""
    messages = [entry.message for entry in snapshot.entries if entry.message]
    return build_view(messages, snapshot.overlay.with_edits(edits), untouched(snapshot.entries, edits))


# Bound reasoning.

Undone = Replacement | Cover | DigestEdit
"""An edit that a restore can undo."""

DROP_REQUEST: dict[str, Any] = {
    "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    "betas": ["thinking-binding-controls-2026-08-01"],
}
"""The fields of a request that make the API drop invalid thinking instead of refusing it, as arguments of the SDKs'
beta Messages method. `betas` becomes the header `anthropic-beta`: the API refuses `block_binding` without it, and
`thinking` without a `type`; `adaptive` is the default of these models."""


@dataclass(frozen=True, slots=True)
class Stripping:
    """What happens to the thinking of so many later `messages` that an edit invalidates whose first changed message is
    `first_seq`."""

    first_seq: int
    choice: Literal["none", "strip", "wait"]
    messages: int = 0

    @property
    def said(self) -> str:
        """What a result says of it, behind what was done; empty if nothing leaves."""
        return f" The thinking of {self.messages} later messages leaves with them." if self.choice == "strip" else ""

    def edits(self, snapshot: SessionSnapshot, edits: Sequence[Edit]) -> list[StripEdit]:
        """The edit that strips the thinking, for the sake of these edits; empty unless that was chosen."""
        return _strip_from(snapshot, self.first_seq, _names(edits)) if self.choice == "strip" else []


def stripping_of(messages: Sequence[Message], first_seq: int, *, bound: bool, needed: bool) -> Stripping:
    """What an edit invalidates in these messages, whose thinking is `bound` or not, and what to do.

    The model needs the thinking of an open tool loop to finish the loop. An edit that would invalidate some of it waits
    for the loop's end, unless it is `needed`: a compaction, or a request that would not fit.
    """
    later = [message for message in messages if message.seq >= first_seq]
    broken = [message for message in later if thinking_tokens(message)] if bound else []
    if not broken:
        return Stripping(first_seq, "none")
    waits = not needed and broken[-1].seq >= _open_loop_start(messages)
    return Stripping(first_seq, "wait" if waits else "strip", len(broken))


def _open_loop_start(messages: Sequence[Message]) -> int:
    """The first position of an open tool loop: the list ends with a tool call or its result, and the user has written
    nothing from that position on. One past the end of the list if no loop is open."""
    if not any(block.type in ("tool_call", "tool_result") for block in messages[-1].blocks):
        return messages[-1].seq + 1
    written = [message.seq for message in messages if message.role == "user" and not answers_calls(message)]
    return written[-1] + 1 if written else 0


def binds(model: str | None) -> bool:
    """Whether what was sent must stay as it was until a compaction, for the sake of later reasoning."""
    return reasoning_binding(model) is not None


def plan_stripping(snapshot: SessionSnapshot, first_seq: int, *, needed: bool = False) -> Stripping:
    """The thinking that an edit invalidates whose first changed message is `first_seq`. One that is `needed`, or made
    while the window is almost full, does not wait for the end of a tool loop."""
    messages = [entry.message for entry in snapshot.entries if entry.message and not entry.stripped]
    needed = needed or level_of(snapshot.view_tokens, snapshot.budget) in ("critical", "overflow")
    return stripping_of(messages, first_seq, bound=binds(snapshot.session.model), needed=needed)


def strips_of(snapshot: SessionSnapshot, undone: Sequence[Undone]) -> list[StripEdit]:
    """The strips that are no longer needed once these edits are undone."""
    in_force = {*_names((*snapshot.overlay.replaced.values(), *snapshot.overlay.covers))} - {*_names(undone)}
    return [strip for strip in snapshot.overlay.strips if not in_force & set(strip.handles)]


def strips_after_restore(
    snapshot: SessionSnapshot, entries: Sequence[Entry], undone: Sequence[Undone]
) -> list[StripEdit]:
    """The strips for the thinking that a restore itself invalidates: thinking written after the edits that it undoes.
    `entries` is the view after the restore."""
    if not undone:
        return []
    # From which message on thinking may be based on each: behind what it stripped itself, else behind its place. The
    # user's words stand before all messages, and are undone only with a summary.
    based = []
    for edit in undone:
        known = [strip.last_seq for strip in snapshot.overlay.strips if {*_names([edit])} & set(strip.handles)]
        place = edit.seq if isinstance(edit, Replacement | SummaryEdit) and edit.seq is not None else edit.span[1]
        if known or not is_user_block(edit):
            based.append(max(known, default=place))
    return strip_after(snapshot, entries, min(based) + 1)


def strip_after(snapshot: SessionSnapshot, entries: Sequence[Entry], first_seq: int) -> list[StripEdit]:
    """The edit that strips the thinking of a view from this message on; empty if there is none, or if it is not
    bound."""
    has_thinking = any(entry.first_seq >= first_seq and entry.thinks for entry in entries)
    return _strip_from(snapshot, first_seq, ()) if has_thinking and binds(snapshot.session.model) else []


def _strip_from(snapshot: SessionSnapshot, first_seq: int, handles: Sequence[str]) -> list[StripEdit]:
    last = snapshot.session.counters.messages - 1
    return [] if first_seq > last else [StripEdit(first_seq=first_seq, last_seq=last, handles=tuple(handles))]


def request_fields(snapshot: SessionSnapshot, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """The fields that a request needs so that the API drops thinking invalidated by edits; None if it needs none."""
    if reasoning_binding(snapshot.session.model) != CLAUDE:
        return None
    changed = next((entry.first_seq for entry in entries if entry.message is None or entry.replaced), None)
    if changed is None or not any(entry.thinks for entry in entries if entry.first_seq > changed):
        return None
    return DROP_REQUEST


def _names(edits: Sequence[Edit]) -> list[str]:
    """The handles by which strips refer to these edits."""
    named = (edit for edit in edits if isinstance(edit, Replacement | SummaryEdit))
    return [edit.summary_id if isinstance(edit, SummaryEdit) else edit.handle for edit in named]
