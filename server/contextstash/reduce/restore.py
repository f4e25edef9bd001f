"""Restore: puts archived outputs, and messages that a summary covers, back into the view exactly as they were."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.reduce.prune import client_note
from contextstash.results import RestoredOutput, RestoreResult
from contextstash.session.access import Access
from contextstash.session.edit import Planned, edit, entries_after
from contextstash.session.open_session import WITH_ALL_OUTPUTS
from contextstash.session.thinking_blocks import Undone, strips_after_restore, strips_of
from contextstash.view.session_snapshot import SessionSnapshot, event_of
from contextstash.view.view import Entry, edits_in_force, total_tokens
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.records import ArchiveEdit, Edit, Replacement, RestoreEdit, Session, SummaryEdit

MAX_NAMED = 20
"""Handles that the logged event names, so that it stays one readable line."""

Shortening = Replacement | SummaryEdit
"""An edit that replaces content with something shorter, and has a handle."""


async def restore(access: Access, handles: Sequence[str], session_id: str | None = None) -> RestoreResult:
    """Put archived outputs, or the messages that a summary covers, back into the view exactly as they were."""
    if not handles:
        raise BadInputError("Pass at least one handle: of an archived output (out_…) or of a summary (sum_…).")
    if session_id is None:
        session_id = await _session_of(access, handles[0])
    return await edit(access, lambda: _plan(access, session_id, list(dict.fromkeys(handles))))


async def restore_last(access: Access, session_id: str) -> RestoreResult:
    """Undo the last prune or compaction by contextstash that is in force, with all that it archived. Raises
    BadInputError if there is none."""
    overlay = edits_in_force(await access.store.read_edits(session_id))
    ours: list[Shortening] = [edit for edit in overlay.summaries if edit.seq is None]
    ours += [edit for edit in overlay.replaced.values() if isinstance(edit, ArchiveEdit)]
    newest = max(ours, key=lambda edit: edit.edit_id, default=None)
    if newest is None:
        raise BadInputError(
            f"Nothing to undo: no prune or compaction by contextstash is in force in session {session_id}."
        )
    together = [_name(edit) for edit in ours if edit.created_at == newest.created_at]
    return await restore(access, together, session_id)


async def _session_of(access: Access, handle: str) -> str:
    if handle.startswith("out_"):
        return (await access.store.find_output(handle))[0]
    found = await access.store.find_summary(handle) or await access.current_session_id()
    if found is None:
        raise HandleNotFoundError(f"There is no output or summary '{handle}'. search_history finds handles.")
    return found


async def _plan(access: Access, session_id: str, handles: list[str]) -> Planned[RestoreResult] | RestoreResult:
    snapshot = await access.snapshot(session_id, WITH_ALL_OUTPUTS)
    shortened: list[Shortening] = [*snapshot.overlay.replaced.values(), *snapshot.overlay.summaries]
    known = {output.handle for output in snapshot.outputs.values()}
    known |= {edit.summary_id for edit in snapshot.edits if isinstance(edit, SummaryEdit)}
    undone: list[Shortening] = []
    untouched: list[str] = []
    for handle in handles:
        found = [edit for edit in shortened if _name(edit) == handle]
        if not found and handle not in known:
            raise HandleNotFoundError(
                f"Session {snapshot.session_id} has no output or summary '{handle}'. search_history finds handles."
            )
        # With a summary the outputs come back that its compaction archived.
        along = [each for edit in found if isinstance(edit, SummaryEdit) for each in edit.archived]
        found += [edit for name in along for edit in shortened if _name(edit) == name]
        undone += [edit for edit in found if edit not in undone]
        untouched += [] if found else [handle]

    def result(_: Session, entries: Sequence[Entry]) -> RestoreResult:
        return RestoreResult(
            session_id=snapshot.session_id,
            restored=[_restored(edit, snapshot, entries) for edit in undone],
            not_archived=untouched or None,
            tokens_before=total_tokens(snapshot.entries),
            tokens_after=total_tokens(entries),
            note=client_note(snapshot),
            client_tokens=snapshot.client_tokens,
        )

    if not undone:
        return result(snapshot.session, snapshot.entries)
    again = {*handles, *(_name(edit) for edit in undone)}
    digests = [edit for edit in snapshot.overlay.digests if set(edit.handles) <= again]
    names = ", ".join(_name(edit) for edit in undone[:MAX_NAMED])
    return Planned(
        snapshot,
        await _edits(access, snapshot, [*undone, *digests]),
        result,
        event=lambda entries: event_of(snapshot, entries, "restore", f"Restored {names}."),
    )


def _name(edit: Shortening) -> str:
    return edit.summary_id if isinstance(edit, SummaryEdit) else edit.handle


async def _edits(access: Access, snapshot: SessionSnapshot, undone: Sequence[Undone]) -> list[Edit]:
    """The edits that undo these edits. Thinking that they had invalidated is restored too; thinking that the model
    wrote since then is stripped."""
    strips = strips_of(snapshot, undone)
    edit = RestoreEdit(undoes=tuple(each.edit_id for each in (*undone, *strips)))
    entries = await entries_after(access, snapshot, [edit])
    return [edit, *strips_after_restore(snapshot, entries, undone)]


def _restored(edit: Shortening, snapshot: SessionSnapshot, entries: Sequence[Entry]) -> RestoredOutput:
    """What is back: of a summary by how much the messages that it covered are larger."""
    if isinstance(edit, SummaryEdit):
        covered = [entry for entry in entries if edit.first_seq <= entry.first_seq and entry.last_seq <= edit.last_seq]
        return RestoredOutput(handle=edit.summary_id, tokens=total_tokens(covered) - edit.tokens)
    output = snapshot.outputs.get((edit.seq, edit.block))
    return RestoredOutput(handle=edit.handle, tokens=0 if output is None else output.tokens)
