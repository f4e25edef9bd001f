"""The service: every use case as one method, in the tools' own words.

    async with Stash(await open_store(path)) as stash:
        await stash.record_messages(messages, session_id="job-7")
        await stash.prune_tool_outputs("job-7")

`Stash.close`, at the end of the block, ends the reductions in the background and closes the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from contextstash.queries import (
    diagnosis,
    overview,
    receipt,
    retrieval,
    sessions,
    shown_messages,
    status,
    timeline,
    window_advice,
)
from contextstash.record import output_archive, output_limits, session_settings
from contextstash.record import provider_reasoning as reasoning
from contextstash.record.declared_parts import System, Tools, check_declared, declare
from contextstash.record.late_usage import book_late
from contextstash.recorder import Recorder
from contextstash.reduce import compact, pins, prune, restore, summaries
from contextstash.request import call_log, client_window, get_context, handoff, overflow_recovery
from contextstash.request.proxied import Changed, ProxiedSessions, with_effect
from contextstash.results import ContextResult, RecordResult
from contextstash.session.session_access import Access, AccessOptions
from contextstash.transfer import retention, transfer
from contextstash.view.client_window import ClientMessage
from contextstash.view.handoff_parts import WHOLE, Part
from contextstash_storage.records import Native, Request
from contextstash_storage.store import SessionStore
from contextstash_storage.tokens import TokenStore

P = ParamSpec("P")
R = TypeVar("R")


class _Method(Generic[P, R]):
    """A method that is defined once, as a function whose first argument is a part of the stash."""

    def __init__(self, function: Callable[Concatenate[Any, P], R], part: Callable[[Stash], object]) -> None:
        self._function = function
        self._part = part

    @overload
    def __get__(self, stash: None, _: type) -> Callable[Concatenate[Any, P], R]: ...
    @overload
    def __get__(self, stash: Stash, _: type) -> Callable[P, R]: ...
    def __get__(self, stash: Stash | None, _: type) -> Callable[..., R]:
        return self._function if stash is None else MethodType(self._function, self._part(stash))


def _use_case(function: Callable[Concatenate[Access, P], R]) -> _Method[P, R]:
    return _Method(function, lambda stash: stash._access)


def _change(
    function: Callable[Concatenate[Access, P], Coroutine[Any, Any, Changed]],
) -> _Method[P, Coroutine[Any, Any, Changed]]:
    """A change of a view: the note of its result says when the requests of a proxied session show it."""

    @wraps(function)
    async def call(access: Access, /, *arguments: P.args, **named: P.kwargs) -> Changed:
        return await with_effect(access, await function(access, *arguments, **named), time.time())

    return _use_case(call)


def _recording(function: Callable[Concatenate[Recorder, P], R]) -> _Method[P, R]:
    return _Method(function, lambda stash: stash._recorder)


def _of_store(method: Callable[Concatenate[SessionStore, P], R]) -> _Method[P, R]:
    def call(access: Access, /, *arguments: P.args, **named: P.kwargs) -> R:
        result: R = getattr(access.store, method.__name__)(*arguments, **named)
        return result

    return _Method(wraps(method)(call), lambda stash: stash._access)


class Stash:
    """One owner's sessions. All methods raise ContextstashError and nothing else on purpose.

    A use case that is one function is listed here with its function, which describes its arguments."""

    def __init__(self, store: SessionStore, **options: Unpack[AccessOptions]) -> None:
        self._options = options
        self._access = Access(store, **options)
        self._recorder = Recorder(self._access)

    @property
    def proxied(self) -> ProxiedSessions:
        """The sessions whose requests go through the proxy."""
        return ProxiedSessions(self._access, self._recorder.recent, self._recorder.locks)

    @property
    def owner(self) -> str:
        """Whose sessions these are."""
        return self._access.store.owner

    @property
    def tokens(self) -> TokenStore:
        """The tokens of a server's clients, of all owners."""
        return self._access.store.tokens

    def for_owner(self, owner: str) -> Stash:
        """The sessions of another owner in the same open database, which follows no client. End it with `end`."""
        options = self._options.copy()
        options.pop("current_session", None)
        return Stash(self._access.store.for_owner(owner), **options)

    async def end(self) -> None:
        """End the reductions in the background; the store stays open."""
        await self._recorder.reducer.close()
        self._access.searches.close()

    async def close(self) -> None:
        """End the reductions in the background, and close the store."""
        await self.end()
        await self._access.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def idle(self) -> None:
        """Wait until no reduction is running in the background."""
        await self._recorder.reducer.idle()

    # Messages in, and the list to send.

    record_messages = _recording(Recorder.record_messages)
    record_transcript = _recording(Recorder.record_transcript)
    read_cursor = _of_store(SessionStore.get_cursor)
    open_session = _use_case(session_settings.open_session)
    configure_session = _use_case(pins.configure_session)
    read_context = _use_case(get_context.read_context)
    recover_context = _use_case(overflow_recovery.recover_context)

    async def get_context(
        self,
        session_id: str | None = None,
        *,
        messages: Sequence[Native] | None = None,
        system: System | None = None,
        tools: Tools | None = None,
        usage: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        budget: int | None = None,
        format: str | None = None,
        **recording: Any,
    ) -> ContextResult:
        """The messages to send next, recorded as a request; one that had to be shrunk records the edits.

        `messages`, if given, is the whole conversation, and is recorded first; the other arguments are those of
        `record_messages`. `budget` is in tokens, by default the usable window; system prompt and tools count.
        """
        recorded: RecordResult | None = None
        if messages is not None:
            if messages:
                await self._recorder.check_next_request(session_id, messages, format)
            recorded = await self.record_messages(
                messages,
                session_id=session_id,
                whole=True,
                format=format,
                usage=usage,
                request_id=request_id,
                system=system,
                tools=tools,
                **recording,
            )
            session_id = recorded.session_id
        elif system is not None or tools is not None or usage is not None:
            check_declared(system, tools)
            session = await declare(self._access, await self._access.session(session_id), system=system, tools=tools)
            if usage is not None:
                await book_late(self._access, session, usage, request_id)
        result = await get_context.get_context(
            self._access,
            session_id,
            format_name=format,
            budget=budget,
            messages=None if recorded is None else recorded.next_seq,
        )
        if recorded is None:
            return result
        done = [*recorded.done, *(result.done or ())]
        return result.model_copy(update={"done": done or None, "next_seq": recorded.next_seq})

    # What shrinks the view, and undoes that.

    prune_tool_outputs = _change(prune.prune_tool_outputs)
    compact_session = _change(compact.compact_session)
    restore_outputs = _change(restore.restore)
    restore_last = _change(restore.restore_last)

    # One output, and everything that was ever recorded.

    limit_output = _use_case(output_limits.limit_text)
    keep_output = _use_case(output_archive.keep_output)
    get_archived_output = _use_case(retrieval.get_archived_output)
    read_call = _use_case(retrieval.read_call)
    search_history = _use_case(retrieval.search_history)
    get_summary = _use_case(summaries.get_summary)

    async def hand_off(
        self,
        session_id: str,
        *,
        max_tokens: int | None = None,
        to: str | None = None,
        resumed: bool = False,
        part: Part = WHOLE,
    ) -> str | None:
        """The hand-off: the text that a new window needs of a session, with handles; None if there is nothing to hand
        off, or if the window has had it. `to` is the session whose window it is, if it is another one; `part` is the
        part to return, if the client takes the hand-off in parts."""
        return await handoff.hand_off_once(self._access, session_id, max_tokens, to, resumed, part)

    hand_off_text = _use_case(handoff.hand_off)

    # What a client's own window holds.

    read_client_window = _use_case(client_window.read_client_window)

    async def compact_client_window(
        self, session_id: str, messages: Sequence[ClientMessage], *, tokens: int = client_window.WINDOW_TOKENS
    ) -> client_window.ClientWindow:
        """Compact a client's window to about so many tokens: the hand-off, and the newest messages."""
        return await client_window.compact_client_window(
            self._access, self._recorder.record_transcript, session_id, messages, tokens
        )

    # Sessions, and what happened to them.

    estimate_context = _use_case(diagnosis.estimate_context)
    context_status = _use_case(status.context_status)
    timeline = _use_case(timeline.timeline)
    session_use = _use_case(overview.session_use)
    overview = _use_case(overview.overview)
    advise = _use_case(window_advice.advise)
    receipt = _use_case(receipt.receipt)
    recent_sessions = _use_case(sessions.recent_sessions)
    list_sessions = _use_case(sessions.list_sessions)
    delete_session = _use_case(sessions.delete_session)
    retain = _use_case(retention.retain)
    line_of = _use_case(sessions.line_of)
    last_prompt = _use_case(sessions.last_prompt)
    read_session = _use_case(Access.session)
    read_messages = _use_case(sessions.read_messages)
    read_conversation = _use_case(sessions.read_conversation)
    read_shown_messages = _use_case(shown_messages.read_shown_messages)
    export_session = _use_case(transfer.export_session)
    export_view = _use_case(transfer.export_view)
    import_session = _use_case(transfer.import_session)
    log_dropped_reasoning = _use_case(reasoning.log_dropped_reasoning)
    list_calls = _use_case(call_log.list_calls)
    read_request = _use_case(call_log.read_request)
    read_calls = _of_store(SessionStore.read_calls)
    read_events = _of_store(SessionStore.read_events)
    read_declared = _of_store(SessionStore.read_declared)

    projects_of = _use_case(Access.projects_of)
    session_line = _use_case(sessions.session_line)

    async def read_requests(self, session_id: str, *, last: int = 10) -> list[Request]:
        """The newest requests of a session, newest first."""
        return await self._access.store.read_requests(session_id, last=last)

    async def mark(self) -> str:
        """A text that is another one after any change of any session; quickly read."""
        found = await self._access.store.mark()
        return f"{found.sessions}-{found.changed_at.isoformat() if found.changed_at else ''}"

    async def complete_session_id(self, prefix: str) -> list[str]:
        """Session ids with this prefix, at most 100; without the sessions that only archive outputs."""
        return await self._access.store.find_session_ids(prefix, 100, without_agent=output_archive.OUTPUTS_AGENT)

    async def complete_handle(self, prefix: str) -> list[str]:
        """Handles with this prefix, at most 100."""
        return await self._access.store.find_handles(prefix, 100)
