"""The service: every use case as one method, in the tools' own words.

    async with Stash(await open_store(path)) as stash:
        await stash.record_messages(messages, session_id="job-7")
        await stash.prune_tool_outputs("job-7")

`Stash.close`, at the end of the block, ends the reductions in the background and closes the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from contextstash import transfer
from contextstash.queries import costs, history, sessions
from contextstash.record import output_archive, transcripts
from contextstash.record.declared import System, Tools, book_late, declare
from contextstash.record.messages import Batch, record_messages
from contextstash.reduce import compact, prune, session_settings
from contextstash.reduce.automatic import AutoReducer
from contextstash.request import get_context, handoff
from contextstash.results import ContextResult, RecordResult
from contextstash.session.access import Access, AccessOptions
from contextstash_storage.records import Native
from contextstash_storage.store import SessionStore


class Stash(Access):
    """The access to one owner's sessions. A use case is a function whose first argument is this access: here it is a
    method of the same arguments, which the function describes."""

    def __init__(self, store: SessionStore, **options: Unpack[AccessOptions]) -> None:
        super().__init__(store, **options)
        self.reducer = AutoReducer(self)

    def for_owner(self, owner: str) -> Stash:
        """The sessions of another owner in the same open database, which follows no client. Close its `reducer`."""
        options: AccessOptions = {**self.options, "current_session": None}
        return Stash(self.store.for_owner(owner), **options)

    async def close(self) -> None:
        """End the reductions in the background, and close the store."""
        await self.reducer.close()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def idle(self) -> None:
        """Wait until no reduction is running in the background."""
        await self.reducer.idle()

    # Messages in, and the list to send.

    read_context = get_context.read_context
    recover_context = get_context.recover_context

    async def record_messages(
        self, messages: Sequence[Native], *, session_id: str | None = None, **given: Any
    ) -> RecordResult:
        """Store messages durably; a session that does not exist is created. `given` are further fields of a Batch."""
        appended = await record_messages(self, session_id, Batch(messages, **given))
        estimate, done = await self.reducer.after_recording(appended)
        known = appended.session.counters.messages
        return RecordResult.of(appended, estimate, recorded=len(appended.messages), next_seq=known, done=done)

    async def get_context(
        self,
        session_id: str | None = None,
        *,
        messages: Sequence[Native] | None = None,
        system: System | None = None,
        tools: Tools | None = None,
        usage: Mapping[str, Any] | None = None,
        budget: int | None = None,
        format: str | None = None,
        **given: Any,
    ) -> ContextResult:
        """The messages to send next, recorded as a request; one that had to be shrunk records the edits.

        `messages`, if given, is the whole conversation, and is recorded first; the other arguments are those of
        `record_messages`. `budget` is in tokens, by default the usable window; system prompt and tools count.
        """
        if messages is None:
            if (system, tools, usage) != (None, None, None):
                session = await declare(self, await self.read_session(session_id), system=system, tools=tools)
                if usage is not None:
                    await book_late(self, session, usage)
            return await get_context.get_context(self, session_id, budget=budget)
        if messages:
            await get_context.check_next_request(self, session_id, messages, format)
        given |= {"usage": usage, "system": system, "tools": tools, "format": format, "whole": True}
        recorded = await self.record_messages(messages, session_id=session_id, **given)
        session_id, seen = recorded.session_id, recorded.next_seq
        result = await get_context.get_context(self, session_id, budget=budget, messages=seen)
        return result.model_copy(update={"done": [*recorded.done, *(result.done or ())] or None, "next_seq": seen})

    open_session = session_settings.open_session
    configure_session = session_settings.configure_session

    # What shrinks the view, and undoes that.

    prune_tool_outputs = prune.prune_tool_outputs
    compact_session = compact.compact_session
    restore_outputs = prune.restore
    restore_last = prune.restore_last

    # One output, and everything that was ever recorded.

    limit_output = output_archive.limit_output
    get_archived_output = history.get_archived_output
    find_output = history.find_output
    search_history = history.search_history
    get_summary = history.get_summary

    # What a new window is told, and what a client's own window holds.

    hand_off = handoff.hand_off_once
    hand_off_text = handoff.hand_off
    read_client_window = handoff.read_client_window
    compact_client_window = handoff.compact_client_window
    note_given_window = handoff.note_given_window

    # Sessions, and what happened to them.

    estimate_context = sessions.estimate_context
    context_status = sessions.context_status
    timeline = sessions.timeline
    advise = costs.advise
    receipt = costs.receipt
    list_sessions = sessions.list_sessions
    delete_session = transfer.delete_session
    retain = transfer.retain
    line_of = sessions.line_of
    project_of = sessions.project_of
    short_id = sessions.short_id
    whole_id = sessions.whole_id
    complete_session_id = sessions.complete_session_id
    read_messages = history.read_messages
    record_transcript = transcripts.record_transcript
    read_conversation = history.read_conversation
    export_session = transfer.export_session
    import_session = transfer.import_session
