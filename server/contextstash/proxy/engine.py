"""The engine: takes a request on its way: its conversation is found, its edits are made, and afterwards it is recorded.

Nothing here may break a request. Each step that fails, or takes too long, leaves the request as the client wrote it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from contextstash.base.background_tasks import BackgroundTasks
from contextstash.clients.request_identity import agent_of, client_session
from contextstash.messages.reasoning_reports import DroppedPiece
from contextstash.messages.request.edits import edited
from contextstash.messages.request.text import RequestText, message_of, read_request
from contextstash.proxy.bill import (
    Bill,
    KnownModels,
    ModelPricing,
    SideCalls,
    billed,
    booked_without_usage,
    is_credible,
    sent_bytes,
)
from contextstash.proxy.conversations import AskedRequest, Conversation, Conversations, before_summary
from contextstash.proxy.edits import (
    Draft,
    Prepared,
    may_show,
    removed_tokens,
    shown_edits,
    thinking_choice,
)
from contextstash.proxy.plan import (
    ProxyOptions,
    Prunable,
    cache_seconds,
    cold_now,
    is_understood,
    offers_retrieval,
    plan_cold,
    plan_needed,
)
from contextstash.proxy.request_lines import Line, follows_response, is_side_call, replied_line
from contextstash.proxy.senders import sender_of
from contextstash.request.proxied import Catalog, ProxiedSessions, RecordedList
from contextstash.window.refusals import recognize
from contextstash_storage.errors import ContextstashError, EditConflictError
from contextstash_storage.records import Native, Session, Usage

logger = logging.getLogger(__name__)

RawHeaders = list[tuple[bytes, bytes]]

Result = TypeVar("Result")

LOAD_FACTOR = 5
"""How many times longer a request waits if its session's outputs must be read first, or if it is pruned: that is rare,
and an original in between would cost the cache."""

HEAL_SECONDS = 30.0
"""How long a refused request may wait until its messages are recorded, so that they can be pruned. The client
would compact otherwise, which takes a minute."""

START_SECONDS = 120.0
"""How long a session's placeholders are shown to a client that does not offer the retrieval tool, though nothing more
is pruned for it. Clients start their MCP servers late: Codex 0.169 sends several requests of a resumed session before.
To show the originals, and then the placeholders again, would cost the cache twice. Clients wait up to 30 s."""

CONFLICT_PAUSES = (0.05, 0.2, 0.8)
"""Seconds between attempts to record a request if other processes change its session. Another proxy's
transaction takes some 10 ms."""

EDIT_REFUSALS = (400, 413, 422)
"""The statuses with which a provider says that the request itself is wrong. 401, 403 and 429 are about the sender."""


class Ingest(Protocol):
    """Records what is new in a client's transcript."""

    async def __call__(self, path: Path) -> object: ...


class Engine:
    """The conversations behind one proxy."""

    def __init__(
        self,
        sessions: ProxiedSessions | None,
        options: ProxyOptions,
        clock: Callable[[], float],
        *,
        ingest: Ingest | None = None,
        facts_of: Callable[[str], ModelPricing] = lambda model: ModelPricing(),
        still_stored: Callable[[], bool] = lambda: True,
    ) -> None:
        """`clock` returns seconds since 1970. `ingest` records a transcript, for sessions that are followed by one.
        `still_stored` says whether others can still read what is recorded."""
        self._sessions = sessions
        self._options = options
        self._clock = clock
        self._ingest = ingest
        self._still_stored = still_stored
        self._models = KnownModels(facts_of)
        self._conversations = Conversations(self._sessions)
        self._side_calls = SideCalls(self._models, clock)
        self._tasks = BackgroundTasks("a step of the proxy")
        self._unread: dict[str | None, int] = {}
        self.faults = 0

    async def prepare(
        self, format_name: str, headers: RawHeaders, body: bytes, *, compacts: bool = False
    ) -> Prepared | AskedRequest | None:
        """The request ready to be sent. What was asked if it belongs to no conversation, and None if it could not be
        understood: then the body goes out as it is. Never raises."""
        asked = None
        try:
            now = self._clock()
            read = self._read(format_name, headers, body)
            asked = self._asked(headers, replace(read, compacts=compacts), now)
            conversation = await self._within(self._options.step_seconds, self._conversations.find(asked))
            if conversation is None:
                return asked
        except Exception as error:
            if asked is not None:
                asked.ended = True
            self._fault(None, error)
            return None
        request, cold = asked.request, cold_now(conversation, now)
        original = Prepared(conversation, request, body, cache_seconds(request), now, cold=cold, asked=asked)
        try:
            return await self._prepared(original, agent_of(headers))
        except Exception as error:
            self._fault(conversation, error)
            return original

    def _read(self, format_name: str, headers: RawHeaders, body: bytes) -> RequestText:
        """The request, read with the help of an earlier one; if that fails, without. Raises JsonPositionError or
        ValueError, and counts it for the client's session: nothing of such a request is recorded."""
        before = self._conversations.likely(body)
        try:
            try:
                return read_request(format_name, body, before)
            except Exception:
                if before is None:
                    raise
                return read_request(format_name, body)
        except Exception:
            client = client_session(headers, None, None)
            name = client.session_id if client else None
            self._unread[name] = self._unread.get(name, 0) + 1
            raise

    def _asked(self, headers: RawHeaders, request: RequestText, now: float) -> AskedRequest:
        metadata = request.value("metadata")
        client = client_session(headers, metadata, request.value("prompt_cache_key"))
        return AskedRequest(request, client, sender_of(headers, metadata), now)

    def ended(self, prepared: Prepared) -> None:
        """A request is on its way no more, with or without a reply."""
        if prepared.asked is not None:
            prepared.asked.ended = True

    async def _prepared(self, original: Prepared, agent: str) -> Prepared:
        conversation, request = original.conversation, original.request
        conversation.note_model(request)
        conversation.agent = agent
        if self._sessions is None or not self._options.prune:
            return original
        await self._catch_up(conversation, request)
        offered = self._can_be_repeated(request)
        if not self._still_stored():
            self._leave_alone(conversation, "its database was deleted or replaced while the proxy ran")
        if conversation.state.left_alone or not is_understood(request) or not self._retrievable(original, offered):
            return original
        may_prune = offered and original.cold and not is_side_call(request)
        pruned = await self._pruned(original) if may_prune else 0
        return self._rendered(original, pruned)

    def _can_be_repeated(self, request: RequestText) -> bool:
        """Whether the model can see again what is left out."""
        return offers_retrieval(request, configured=self._options.configured)

    def _retrievable(self, original: Prepared, offered: bool) -> bool:
        """Whether the model can fetch what placeholders stand for, now or as soon as the client's servers run. For the
        client's summary they are shown always: Codex's offers no tools, and the originals may exceed the window."""
        conversation = original.conversation
        if offered:
            conversation.unoffered_since = None
        if offered or is_side_call(original.request):
            return True
        if conversation.unoffered_since is None:
            conversation.unoffered_since = original.started
        return original.started - conversation.unoffered_since <= START_SECONDS

    async def _pruned(self, original: Prepared) -> int:
        """How many outputs were pruned for this request. If that fails, or takes too long, the edits of the former
        request hold: the original would cost the cache."""
        try:
            chosen = plan_cold(original, self._options.keep_tokens)
            if not chosen:
                return 0
            archiving = self._archive(original, chosen, "cold cache")
            return await self._within(LOAD_FACTOR * self._options.step_seconds, archiving)
        except Exception as error:
            logger.warning("%s: not pruned: %s", original.conversation.session_id, type(error).__name__)
            return 0

    def _rendered(self, original: Prepared, pruned: int) -> Prepared:
        """The request with the session's edits. Raises JsonPositionError if a place is not as expected."""
        conversation, request = original.conversation, original.request
        shown = shown_edits(original)
        if not may_show(original, shown):
            conversation.edits, pruned = conversation.shown, 0
            shown = shown_edits(original)
        body, _ = edited(request, {place: each.edit for place, each in shown.now.items()}, shown.summaries)
        former, conversation.shown = conversation.shown, conversation.edits
        return replace(
            original,
            body=body,
            removed=removed_tokens(original, shown),
            pruned=pruned,
            changed=shown.first < len(request.messages),
            former=former,
        )

    async def _catch_up(self, conversation: Conversation, request: RequestText) -> None:
        """Take over what other processes did to the session. If the database is slow, what is known of it holds: other
        edits than those of the last request would cost the cache. Raises TimeoutError if nothing is known yet."""
        seconds = self._options.step_seconds
        if not conversation.loaded:
            await self._within(LOAD_FACTOR * seconds, self._refresh(conversation, request))
            return
        try:
            await self._within(seconds, self._refresh(conversation, request))
        except (TimeoutError, ContextstashError) as error:
            logger.warning("%s: the database is slow: %s", conversation.session_id, type(error).__name__)

    async def _refresh(self, conversation: Conversation, request: RequestText) -> None:
        """Take over what other processes did to the session: our tools, the pages, another proxy."""
        assert self._sessions is not None
        session = await self._present(conversation)
        if session is None:
            conversation.loaded = True
            return
        conversation.settings = self._sessions.settings(session)
        if not conversation.loaded:
            conversation.followed = session.source
            conversation.catalog = await self._sessions.catalog(conversation.session_id, Catalog())
            natives = [message.plain for message in request.messages]
            conversation.stored = RecordedList(await self._sessions.positions(conversation.session_id, natives))
            conversation.recorded = request.messages[: len(conversation.positions)]
            conversation.line = conversation.line or conversation.recorded
        if not conversation.loaded or session.counters.edits != conversation.edits.edits:
            await self._sessions.catalog(conversation.session_id, conversation.catalog)
            conversation.edits = await self._sessions.edits(conversation.session_id, conversation.catalog)
        if not conversation.loaded:
            conversation.shown = conversation.edits
        conversation.loaded = True

    async def _present(self, conversation: Conversation) -> Session | None:
        """The conversation's session, None if there is none. If it was deleted while the client runs, its edits end
        with it, and it is not recorded again: what stands behind its placeholders is gone, and the user wanted that."""
        assert self._sessions is not None
        session = None if conversation.deleted else await self._sessions.find(conversation.session_id)
        if conversation.stored_since is None:
            conversation.stored_since = session.created_at if session is not None else None
        elif session is None or session.created_at != conversation.stored_since:
            conversation.forget()
        if conversation.deleted:
            self._leave_alone(conversation, "its session was deleted; what its client goes on with is not recorded")
            return None
        return session

    async def _archive(self, draft: Draft, chosen: Sequence[Prunable], reason: str, *, needed: bool = False) -> int:
        """Archive these outputs durably; how many that were. It is `needed` after the provider refused the request."""
        assert self._sessions is not None
        conversation = draft.conversation
        thinking = thinking_choice(draft, min(each.place for each in chosen), needed=needed)
        if not thinking.possible:
            return 0
        strip_from: int | None = None
        if thinking.strip_from is not None:
            # what is stripped must be recorded up to the last reply
            await self._record(conversation, draft.request, None)
            if thinking.strip_from >= len(conversation.positions):
                return 0
            strip_from = conversation.positions[thinking.strip_from]
        known = conversation.catalog.outputs
        outputs = [known[each.key].output for each in chosen if each.key in known]
        archived = await self._sessions.archive(conversation.session_id, outputs, strip_from)
        conversation.edits = await self._sessions.edits(conversation.session_id, conversation.catalog)
        logger.info("%s: archived %d outputs (%s)", conversation.session_id, archived, reason)
        return archived

    async def after_refusal(self, prepared: Prepared, status: int, error: bytes | None) -> Prepared | None:
        """The request to send once more after the provider refused it; None if the client gets the refusal. What
        cannot be read (`error` is None) is no verdict on our edits: the session goes on. Never raises."""
        if status not in EDIT_REFUSALS:
            return None
        try:
            if error is None:
                return prepared.as_original() if prepared.edited else None
            text = error.decode("utf-8", "replace")
            overflow = recognize(text)
            if overflow is not None:
                return await self._within(HEAL_SECONDS, self._healed(prepared))
            return self._unedited(prepared, status) if prepared.edited else None
        except Exception as fault:
            self._fault(prepared.conversation, fault)
            return prepared.as_original() if prepared.edited else None

    async def _healed(self, prepared: Prepared) -> Prepared | None:
        """The request shrunk below what was refused; None if nothing more can leave it."""
        conversation, request = prepared.conversation, prepared.request
        if self._sessions is None or not self._options.prune or conversation.state.left_alone:
            return None
        if not is_understood(request) or not self._can_be_repeated(request):
            return None
        await self._record(conversation, request, None)
        for keep_tokens in (self._options.keep_tokens, self._options.keep_tokens // 4):
            chosen = plan_needed(prepared, keep_tokens)
            if chosen:
                archived = await self._archive(prepared, chosen, "the request was too long", needed=True)
                healed = self._rendered(prepared, archived) if archived else None
                return healed if healed is not None and len(healed.body) < len(prepared.body) else None
        return None

    def _unedited(self, prepared: Prepared, status: int) -> Prepared:
        """The original, because an edited request was refused; nothing is edited in this session from now on."""
        conversation = prepared.conversation
        conversation.state = conversation.state.model_copy(update={"refused": conversation.state.refused + 1})
        self._leave_alone(conversation, f"the provider refused an edited request with status {status}")
        return prepared.as_original()

    def _leave_alone(self, conversation: Conversation, reason: str) -> None:
        if not conversation.state.left_alone:
            conversation.state = conversation.state.model_copy(update={"left_alone": reason})
            logger.warning(
                "%s: %s; the original is sent, and no edit is made from now on", conversation.session_id, reason
            )

    def finish_side_call(self, asked: AskedRequest, usage: Usage | None) -> None:
        """Bill a request that belongs to no conversation to its client's main one."""
        if usage is not None:
            self._side_calls.add(asked, usage)
            conversation = self._conversations.of_client(asked.client_id)
            if conversation is not None and conversation.state.requests:
                self._tasks.start(self._keep_state(conversation))

    def finish(
        self,
        prepared: Prepared,
        usage: Usage | None,
        *,
        healed: bool = False,
        response: Mapping[str, Any] | None = None,
        dropped: Sequence[DroppedPiece] = (),
        final: Callable[[], list[Native]] = list,
    ) -> None:
        """Book and record a request after its reply has ended, in the background. `response` is the reply, if the API
        sends it as a whole (Responses API); `dropped` is the reasoning that the provider left out of the request;
        `final` reads the messages of the reply, if that ends a turn."""
        conversation = prepared.conversation
        self.ended(prepared)
        try:
            ended = self._clock()
            bill = None
            if usage is not None and not is_credible(prepared, usage):
                usage = None
            if usage is None:
                state = booked_without_usage(prepared, ended)
            else:
                facts = self._models.of(conversation.state.model)
                known = facts.result() if facts.done() else ModelPricing()
                bill, state = billed(prepared, usage, known, self._options.window, ended)
            new = conversation.newly_dropped(dropped)
            counts = {"healed": state.healed + healed, "reasoning_dropped": state.reasoning_dropped + len(new)}
            conversation.state = state.model_copy(update=counts)
            former = None if prepared.left_behind else self._advance(prepared, usage, response)
            if not prepared.left_behind:
                conversation.final = final
            else:
                conversation.keep_response(
                    response, replied_line(prepared.request, prepared.request.messages, response)
                )
            self._tasks.start(self._keep(prepared, former, response, bill, new))
        except Exception as error:
            self._fault(conversation, error)

    def _advance(self, prepared: Prepared, usage: Usage | None, response: Mapping[str, Any] | None) -> Usage | None:
        """Go on from a request that got its reply. Returns the usage of the former reply if the request extends it."""
        conversation, request = prepared.conversation, prepared.request
        conversation.advance(request, response)
        former, conversation.usage = conversation.usage, usage
        known, conversation.request = conversation.request, request
        conversation.sent_bytes = sent_bytes(prepared)
        return former if known is not None and len(request.messages) > len(known.messages) else None

    async def _keep(
        self,
        prepared: Prepared,
        usage: Usage | None,
        response: Mapping[str, Any] | None,
        bill: Bill | None,
        new: list[DroppedPiece],
    ) -> None:
        conversation, request = prepared.conversation, prepared.request
        if self._sessions is None:
            return
        if conversation.deleted:
            await self._conversations.note_unrecorded(conversation, request)
            return
        try:
            if not prepared.left_behind:
                await self._record(conversation, request, usage, response)
        except Exception as error:
            # Each request holds the whole conversation: the next one records what is missing.
            logger.warning(
                "%s: a request is not recorded yet: %s; the next one records it",
                conversation.session_id,
                type(error).__name__,
            )
        if new and not conversation.deleted:
            await self._sessions.note_dropped(conversation.session_id, new)
        if conversation.summarized and not conversation.compacting:
            before, conversation.summarized = conversation.summarized, 0
            await self._sessions.note_compaction(conversation.session_id, before, conversation.state.prompt)
        facts = self._models.of(conversation.state.model)
        if not facts.done():  # the proxy may end before the price table is loaded
            await self._keep_state(conversation)
        known = await asyncio.shield(facts)
        if bill is not None:
            conversation.state = bill.added_to(conversation.state, known)
        await self._keep_state(conversation)

    async def _keep_state(self, conversation: Conversation) -> None:
        assert self._sessions is not None
        await self._side_calls.bill_to(conversation)
        if not conversation.deleted:
            self._count_unread(conversation)
            state = conversation.state
            if self._options.project and not state.project:
                conversation.state = state = state.model_copy(update={"project": self._options.project})
            await self._sessions.keep_state(conversation.session_id, state)

    def _count_unread(self, conversation: Conversation) -> None:
        """Add the requests that could not be read to a session of their client, or of any one if that is not known."""
        state = conversation.state
        unread = self._unread.pop(state.client_session, 0) + self._unread.pop(None, 0)
        if unread:
            conversation.state = state.model_copy(update={"unread": state.unread + unread})

    async def _record(
        self,
        conversation: Conversation,
        request: RequestText,
        usage: Usage | None,
        response: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a request's messages as the whole conversation, or by the client's transcript if that is followed.
        Tried again if others change the session."""
        async with conversation.recording:
            found = before_summary(conversation, request) if is_side_call(request) else request
            if found is None:
                return
            # The next request begins with what a compaction returns: it is not recorded as a reply.
            request, response = found, (None if is_side_call(request) else response)
            for seconds in CONFLICT_PAUSES:
                try:
                    await self._record_alone(conversation, request, usage, response)
                except EditConflictError:
                    await asyncio.sleep(seconds)
                else:
                    return
            await self._record_alone(conversation, request, usage, response)

    async def _record_alone(
        self,
        conversation: Conversation,
        request: RequestText,
        usage: Usage | None,
        response: Mapping[str, Any] | None,
    ) -> None:
        assert self._sessions is not None
        session_id = conversation.session_id
        stored = await self._present(conversation) is not None
        if conversation.deleted:
            await self._conversations.note_unrecorded(conversation, request)
            return
        if conversation.followed and self._ingest is not None:
            await self._ingest(Path(conversation.followed))
        else:
            messages = await self._whole(conversation, request, stored=stored)
            replied = replied_line(request, messages, response)
            conversation.keep_response(response, replied)
            await self._record_line(conversation, replied if follows_response(request) else messages, usage)
        await self._sessions.catalog(session_id, conversation.catalog)
        session = await self._present(conversation)
        if session is not None and session.counters.edits != conversation.edits.edits:
            conversation.edits = await self._sessions.edits(session_id, conversation.catalog)

    async def _record_line(self, conversation: Conversation, messages: Line, usage: Usage | None) -> None:
        assert self._sessions is not None
        if conversation.recorded == messages:
            return
        conversation.stored = await self._sessions.record(
            conversation.session_id,
            [message.plain for message in messages],
            conversation.extended_by(messages),
            since=conversation.stored_since,
            usage=usage,
            format=conversation.format,
            model=conversation.state.model,
            agent=conversation.agent,
            parent_session_id=conversation.parent,
        )
        conversation.recorded = messages

    async def _whole(self, conversation: Conversation, request: RequestText, *, stored: bool) -> Line:
        """All messages of the conversation, also if the provider keeps the former ones. Those from before the proxy ran
        are not known: then nothing is `stored`."""
        if not follows_response(request):
            return request.messages
        assert self._sessions is not None
        previous, origin = request.value("previous_response_id"), conversation.origin
        if origin is not None:
            async with origin.recording:  # the response may not be recorded there yet
                conversation.responses[previous] = origin.responses.get(previous, ())
            conversation.origin = None
        before = conversation.responses.get(previous)
        if not before:
            natives = await self._sessions.natives(conversation.session_id) if stored else []
            before = tuple(message_of(native, request.format) for native in natives)
        return (*before, *request.messages)

    def _fault(self, conversation: Conversation | None, error: BaseException) -> None:
        """Count an error that let a request go out unedited. Logs only its kind: the text may quote the request."""
        self.faults, named = self.faults + 1, conversation.session_id if conversation else "a request"
        logger.warning("%s went on unedited: %s", named, type(error).__name__)
        if conversation is not None:
            state = conversation.state
            conversation.state = state.model_copy(update={"faults": state.faults + 1})

    async def _within(self, seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of `work`. Raises TimeoutError after so many seconds; the work continues in the background,
        since a transaction must not be cut."""
        task = self._tasks.start(work)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TimeoutError
        return task.result()

    async def end(self) -> None:
        """Wait until everything is recorded, and record the last replies, which no request holds."""
        await self.idle()
        for conversation in self._conversations.in_memory if self._sessions is not None else ():
            try:
                await self._record_final(conversation)
            except Exception as error:
                logger.warning("%s: its last reply is not recorded: %s", conversation.session_id, type(error).__name__)

    async def _record_final(self, conversation: Conversation) -> None:
        """Record the reply to a conversation's last request behind the messages of that. A transcript brings it too,
        and what another process has recorded since goes further."""
        request = conversation.request
        if request is None or is_side_call(request) or conversation.recorded != request.messages:
            return
        reply = [message_of(native, request.format) for native in conversation.final()]
        session = await self._present(conversation) if reply and not conversation.followed else None
        if session is not None and session.counters.messages == conversation.stored.messages:
            await self._record_line(conversation, (*request.messages, *reply), conversation.usage)

    async def idle(self) -> None:
        """Wait until everything is recorded."""
        await self._tasks.idle()
