"""The engine: takes a request on its way: its conversation is found, its edits are made, and afterwards it is recorded.

Nothing here may break a request. Each step that fails, or takes too long, leaves the request as the client wrote it,
or with the edits that it had before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from contextstash.clients.follow import ingest
from contextstash.clients.proxied import agent_of, client_session, is_compaction
from contextstash.messages.anthropic import content_of
from contextstash.messages.request import SERVER_STATE_KEYS, RequestText, message_of, read_request
from contextstash.proxy.bill import booked
from contextstash.proxy.conversations import (
    ONE_USER,
    AskedRequest,
    Conversation,
    Conversations,
    Line,
    common_start,
    sender_of,
)
from contextstash.proxy.edits import (
    COLD_KEEP_SHARE,
    MIN_TOKENS,
    Prepared,
    ProxyOptions,
    cold_now,
    is_bound,
    laid_over,
    offers_retrieval,
    old_outputs,
)
from contextstash.reduce.prune import take
from contextstash.request.proxied import edits_to_show, positions_of, record_request
from contextstash.stash import Stash
from contextstash.view.ladder import Step
from contextstash.window.refusals import recognize
from contextstash_storage.errors import ContextstashError, SessionNotFoundError
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


def is_overflow(error: bytes | None) -> bool:
    """Whether a refusal says that the request is too long."""
    return error is not None and recognize(error.decode("utf-8", "replace")) is not None


class Engine:
    """The conversations behind one proxy."""

    def __init__(self, stash: Stash, options: ProxyOptions) -> None:
        self._stash = stash
        self._options = options
        self._conversations = Conversations(stash)
        # asyncio itself keeps only weak references, so that a task could end before its work does.
        self._running: set[asyncio.Task[Any]] = set()

    # Before it is sent.

    async def prepare(self, format_name: str, headers: RawHeaders, body: bytes) -> Prepared | None:
        """The request ready to be sent; None if it belongs to no conversation, or could not be understood: then the
        body goes out as it is. Never raises."""
        original: Prepared | None = None
        try:
            asked = self._asked(format_name, headers, body)
            conversation = await self._within(1, self._conversations.find(asked))
            if conversation is None:
                return None
            conversation.agent = agent_of(headers)
            original = Prepared(conversation, asked, body, cold=cold_now(conversation, asked.at))
            return await self._prepared(original)
        except Exception as error:
            self._fault(original.conversation if original else None, error)
            return original

    def _asked(self, format_name: str, headers: RawHeaders, body: bytes) -> AskedRequest:
        """The request, read with the help of an earlier one. Raises ValueError if it cannot be read, or continues what
        the provider keeps, and counts it for the client's session: nothing of it is recorded."""
        client_id, parent = client_session(headers)
        try:
            request = read_request(format_name, body, self._conversations.likely(body))
            if format_name == "openai-responses" and any(request.value(key) for key in SERVER_STATE_KEYS):
                raise ValueError("the provider keeps the conversation")
        except Exception:
            unread = self._options.unread
            unread[client_id] = unread.get(client_id, 0) + 1
            raise
        sender = sender_of(headers) if self._options.secret is None else ONE_USER
        return AskedRequest(request, client_id, sender, self._options.clock(), parent)

    async def _prepared(self, original: Prepared) -> Prepared:
        conversation, asked = original.conversation, original.asked
        model = asked.request.value("model")
        if isinstance(model, str) and model != conversation.state.model:
            conversation.change(model=model)
        if not self._options.prune:
            return original
        await self._catch_up(conversation, asked.request)
        if conversation.state.left_alone:
            return original
        if not asked.summarizes and not offers_retrieval(asked, configured=self._options.configured):
            # What was shown stays: the client's servers may still be starting, and later reasoning is bound to it.
            conversation.edits = conversation.shown
        elif not asked.summarizes and original.cold:
            step = old_outputs(round(self._options.keep_tokens * COLD_KEEP_SHARE), MIN_TOKENS)
            try:
                await self._within(LOAD_FACTOR, self._archive(original, step))
            except Exception as error:  # the edits of the former request hold: the original would cost the cache
                logger.warning("%s: not pruned: %s", conversation.session_id, type(error).__name__)
        return laid_over(original)

    async def _archive(self, original: Prepared, step: Step) -> bool:
        """Archive durably what the step chooses. Returns whether that was anything."""
        conversation, asked = original.conversation, original.asked
        if is_bound(conversation, asked.request):
            return False
        await self._record(conversation, asked, conversation.usage_before(asked))
        done = await take(self._stash, conversation.session_id, step, within_reach=True)
        conversation.edits = await edits_to_show(self._stash, conversation.session_id)
        return bool(done.archived)

    async def _catch_up(self, conversation: Conversation, request: RequestText) -> None:
        """Take over what other processes did to the session: our tools, the pages, another proxy. If the database is
        slow, what is known of it holds: other edits than those of the last request would cost the cache. Raises
        TimeoutError if nothing is known yet."""

        async def refresh() -> None:
            name, session, first = conversation.session_id, await self._present(conversation), not conversation.loaded
            if session is not None:
                if first or session.counters.edits != conversation.edits.edits:
                    conversation.edits = await edits_to_show(self._stash, name)
                if conversation.edits.summaries:
                    natives = [message.plain for message in request.messages]
                    conversation.places = await positions_of(self._stash, name, natives)
                if first:  # what an earlier proxy showed; others may have edited since
                    conversation.shown = await edits_to_show(self._stash, name, conversation.state.shown)
            conversation.loaded = True

        try:
            await self._within(1 if conversation.loaded else LOAD_FACTOR, refresh())
        except (TimeoutError, ContextstashError) as error:
            if not conversation.loaded:
                raise
            logger.warning("%s: the database is slow: %s", conversation.session_id, type(error).__name__)

    async def _present(self, conversation: Conversation) -> Session | None:
        """The conversation's session, None if there is none. If it was deleted while the client runs, its edits end
        with it, and it is not recorded again: what stands behind its placeholders is gone, and the user wanted that."""
        session = None if conversation.deleted else await self._stash.find(conversation.session_id)
        if conversation.stored_since is None:
            if session is not None:
                conversation.stored_since, conversation.followed = session.created_at, session.source
        elif session is None or session.created_at != conversation.stored_since:
            conversation.forget()
        if conversation.deleted:
            self._leave_alone(conversation, "its session was deleted; what its client goes on with is not recorded")
            return None
        return session

    def _leave_alone(self, conversation: Conversation, reason: str) -> None:
        if not conversation.state.left_alone:
            conversation.change(left_alone=reason)
            logger.warning(
                "%s: %s; the original is sent, and no edit is made from now on", conversation.session_id, reason
            )

    # After a refusal.

    async def after_refusal(self, prepared: Prepared, status: int, error: bytes | None) -> Prepared | None:
        """The request to send once more after the provider refused it with this text (None if it cannot be read); None
        if the client gets the refusal. Never raises."""
        try:
            if is_overflow(error):
                return await self._within(HEAL_SECONDS / self._options.step_seconds, self._healed(prepared))
        except Exception as fault:  # the original is longer than what was refused
            self._fault(prepared.conversation, fault)
            return None
        return replace(prepared, body=prepared.request.body) if prepared.edited else None

    def original_accepted(self, prepared: Prepared, status: int, error: bytes | None) -> None:
        """End the edits of a session: the provider refused an edited request with this text, and took the original. One
        that it refuses too, such as for a picture that is too large, says nothing of the edits."""
        if error is not None and not is_overflow(error):
            self._leave_alone(prepared.conversation, f"the provider refused an edited request with status {status}")

    async def _healed(self, prepared: Prepared) -> Prepared | None:
        """The request shrunk below what was refused; None if nothing more can leave it."""
        conversation, asked, keep = prepared.conversation, prepared.asked, self._options.keep_tokens
        if not self._options.prune or conversation.state.left_alone:
            return None
        if not offers_retrieval(asked, configured=self._options.configured):
            return None
        for tokens in (keep, keep // 4):
            if await self._archive(prepared, old_outputs(tokens, unread=True)):
                healed = laid_over(prepared)
                return healed if len(healed.body) < len(prepared.body) else None
        return None

    # After its reply.

    def finish(self, prepared: Prepared, usages: Sequence[Usage], last_words: Sequence[Native] = ()) -> None:
        """Book a request after its reply has ended, and record it in the background. `usages` are those that the reply
        reports, its own first; `last_words` its messages, if it ends a turn."""
        conversation, asked = prepared.conversation, prepared.asked
        try:
            conversation.state = booked(prepared, usages, self._options.clock())
            # Users who begin with the same words share a session until one of them has gone on.
            is_past = asked.client_id is None and len(asked.request.messages) < len(conversation.line)
            former = conversation.usage_before(asked)
            if not is_past:
                conversation.answered, conversation.last_words = asked.request, last_words
                conversation.usage = next(iter(usages), None)
            self._start(self._keep(prepared, former, is_past))
        except Exception as error:
            self._fault(conversation, error)

    async def _keep(self, prepared: Prepared, usage: Usage | None, is_past: bool) -> None:
        """Record a request and its bill, with the requests that could not be read, of its client or of no known one.
        `usage` is that of the reply before, if the request extends it."""
        conversation = prepared.conversation
        try:
            if not is_past:
                await self._record(conversation, prepared.asked, usage)
        except Exception as error:
            self._not_recorded(conversation, error)
        if conversation.deleted:
            return
        unread = sum(self._options.unread.pop(name, 0) for name in (conversation.state.client_session, None))
        project = conversation.state.project or self._options.project
        conversation.change(unread=conversation.state.unread + unread, project=project, shown=conversation.shown.edits)
        with suppress(SessionNotFoundError):  # deleted meanwhile
            await self._stash.store.put_note(conversation.session_id, conversation.state)

    async def _record(self, conversation: Conversation, asked: AskedRequest, usage: Usage | None) -> None:
        """Record a request's messages as the whole conversation, or by the client's transcript if that is followed."""
        async with conversation.recording:
            messages = _before_summary(conversation, asked) if asked.summarizes else asked.request.messages
            if messages:
                await self._record_line(conversation, messages, usage)

    async def _record_line(self, conversation: Conversation, messages: Line, usage: Usage | None) -> None:
        await self._present(conversation)
        if conversation.deleted or conversation.recorded == messages:
            return
        if conversation.followed:
            await ingest(self._stash, Path(conversation.followed))
            return
        session = await record_request(
            self._stash,
            conversation.session_id,
            [message.plain for message in messages],
            since=conversation.stored_since,
            usage=usage,
            format=conversation.format,
            model=conversation.state.model,
            agent=conversation.agent,
            parent_session_id=conversation.parent,
        )
        conversation.recorded, conversation.stored = messages, session.counters.messages

    def _fault(self, conversation: Conversation | None, error: BaseException) -> None:
        """Count an error that let a request go out unedited. Logs only its kind: the text may quote the request."""
        named = conversation.session_id if conversation else "a request"
        logger.warning("%s went on unedited: %s", named, type(error).__name__)
        if conversation is not None:
            conversation.change(faults=conversation.state.faults + 1)

    def _not_recorded(self, conversation: Conversation, error: Exception) -> None:
        """Count what could not be recorded. Each request holds the whole conversation: the next one records what is
        missing."""
        self._options.unrecorded.append(conversation.session_id)
        logger.warning("%s: a request or reply is not recorded: %s", conversation.session_id, type(error).__name__)

    async def _within(self, factor: float, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of `work`. Raises TimeoutError after so many times the usual seconds; the work continues in
        the background, since a transaction must not be cut."""
        task = self._start(work)
        await asyncio.wait({task}, timeout=factor * self._options.step_seconds)
        if not task.done():
            raise TimeoutError
        return task.result()

    def _start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Have the work done in the background. If it fails, the kind of its error is logged."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a step of the proxy failed: %s", type(error).__name__)

    # At the end.

    async def idle(self) -> None:
        """Wait until everything is recorded."""
        while self._running:
            await asyncio.wait(set(self._running))

    async def end(self) -> None:
        """Wait until everything is recorded, and record the last replies, which no request holds."""
        await self.idle()
        for conversation in [*self._conversations.known.values()]:
            try:
                await self._record_last_words(conversation)
            except Exception as error:
                self._not_recorded(conversation, error)

    async def _record_last_words(self, conversation: Conversation) -> None:
        """Record the reply to a conversation's last request behind the messages of that. A transcript brings it too,
        and what another process has recorded since goes further."""
        request, said = conversation.answered, conversation.last_words
        if request is None or not said or conversation.followed:
            return
        session = await self._present(conversation)
        as_recorded = conversation.recorded == request.messages
        if as_recorded and session is not None and session.counters.messages == conversation.stored:
            reply = [message_of(native, request.format) for native in said]
            await self._record_line(conversation, (*request.messages, *reply), conversation.usage)


def _before_summary(conversation: Conversation, asked: AskedRequest) -> Line:
    """What the client's request for a summary holds but the prompt for it, if that is new: the results that have filled
    the window are in no other request. Nothing if it does not go on from what is recorded."""
    messages = asked.request.messages
    latest = asked.request.latest
    rest = [block for block in content_of(latest.native) if not is_compaction({"content": [block]})]
    results = [message_of({**latest.native, "content": rest}, latest.format)] if latest.results else []
    messages = (*messages[: messages.index(latest)], *results)
    known = common_start(conversation.recorded, messages)
    goes_on = known == len(conversation.recorded) < len(messages)
    return messages if goes_on else ()
