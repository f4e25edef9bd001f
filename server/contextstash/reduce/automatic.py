"""Automatic reduction: after a recording, takes the steps of the ladder that are due, and reports what was done.

Recording never waits for a model: if the summarizer is slow, the reduction runs in the background, and the result of
the next recording reports how it ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from contextstash.base.process import error_trace
from contextstash.reduce.compact import FOLD_EVERY, RUNNING, compact_session, fold_behind
from contextstash.reduce.prune import prune_oldest, prune_tool_outputs, take
from contextstash.results import Estimate
from contextstash.session.access import Access, BoundedCache, estimate_session
from contextstash.session.edit import binds
from contextstash.view.ladder import mark_step
from contextstash.view.session_snapshot import own_tokens
from contextstash.window.settings import ContextSettings
from contextstash.window.thresholds import Due, due, results_due
from contextstash_storage.errors import ContextstashError
from contextstash_storage.records import Appended, Session

logger = logging.getLogger(__name__)

RETRY_MESSAGES, RETRY_GROWTH = 20, 0.10
"""If a session is still due after a reduction, because nothing or too little could leave, the next attempt comes after
this many more messages, ten calls with their results, or after the context has grown by this share of usable. Each
breaks the prompt cache, and mostly finds as little."""

MAX_REMEMBERED_SESSIONS = 1_024
"""Sessions of which unreported results and fruitless attempts are kept in memory: a few hundred bytes each."""

STARTED = "A compaction was started in the background."


class AutoReducer:
    """Prunes and compacts sessions as they grow."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._running: dict[str, asyncio.Future[None]] = {}
        """By session what ends with its reduction: a task in the background, or the claim of a recording."""
        self._closed = False
        self._unreported: BoundedCache[str, list[str]] = BoundedCache(MAX_REMEMBERED_SESSIONS)
        self._fruitless: BoundedCache[str, tuple[int, int, bool]] = BoundedCache(MAX_REMEMBERED_SESSIONS)
        """By session, if its last attempt freed nothing or too little, its messages and tokens then, and whether a
        compaction was still due."""

    async def after_recording(self, appended: Appended) -> tuple[Estimate, list[str]]:
        """Reduce the session if that is due. Returns its state afterwards, and what was done since the
        last recording. A failure here never fails the recording."""
        session, session_id = appended.session, appended.session.session_id
        if session.counters.messages % FOLD_EVERY < len(appended.messages):
            with _harmless(session_id):
                await fold_behind(self._access, session)
        access, running = self._access, self._running
        estimate = await estimate_session(access, session)
        done = self._unreported.pop(session_id, [])
        # One whose client goes through the proxy is not reduced automatically: there an edit changes the next request,
        # and the proxy alone knows whether that pays.
        may_reduce = session.source is None or await access.sends_own_history(session)
        # No await between the check and the claim: otherwise two callers could both find the session free.
        is_free = not self._closed and session_id not in running
        wanted = self._worth_trying(session) if may_reduce and is_free else None
        if wanted is None or not access.settings(session).automatic:
            return estimate, done
        if self._may_wait_for_model(session):
            running[session_id] = task = asyncio.create_task(self._in_background(session_id, wanted))
            # not at the end of the coroutine: a task that is cancelled before its first step never gets there
            task.add_done_callback(lambda _: running.pop(session_id))
            return estimate, [*done, STARTED] if wanted.compact else done
        running[session_id] = claim = asyncio.get_running_loop().create_future()
        try:
            done += await self._reduce(session_id, wanted)
        finally:
            claim.set_result(None)
            del running[session_id]
        return await estimate_session(access, await access.read_session(session_id)), done

    async def close(self) -> None:
        """Cancel the reductions in the background, which changes no view, and wait for those that a recording waits
        for. No reduction starts afterwards."""
        self._closed = True
        for task in self._running.values():
            if isinstance(task, asyncio.Task):
                task.cancel()
        await self.idle()

    async def idle(self) -> None:
        """Wait until no reduction is running."""
        while self._running:
            await asyncio.wait(self._running.values())

    def _may_wait_for_model(self, session: Session) -> bool:
        settings = self._access.settings(session)
        by_model = settings.tool_digest == "llm" or _strategy(session, settings) in ("auto", "anthropic")
        return by_model and self._access.reaches_model(session.agent, settings)

    def _worth_trying(self, session: Session) -> Due | None:
        """What is due, if an attempt is likely to free more than the last one did."""
        tokens, wanted = self._due(session)
        if not (wanted.prune or wanted.compact):
            return None
        if (last := self._fruitless.get(session.session_id)) is None:
            return wanted
        messages, growth = session.counters.messages - last[0], tokens - last[1]
        most = RETRY_GROWTH * self._access.limits(session)[1].usable
        is_as_before = messages < RETRY_MESSAGES and 0 <= growth < most and last[2] >= wanted.compact
        return None if is_as_before else wanted

    async def _in_background(self, session_id: str, wanted: Due) -> None:
        self._unreported.set(session_id, await self._reduce(session_id, wanted))

    async def _reduce(self, session_id: str, wanted: Due) -> list[str]:
        done: list[str] = []
        with _harmless(session_id):
            await self._descend(session_id, wanted, done)
        self._fruitless.pop(session_id, None)
        with suppress(ContextstashError):
            session = await self._access.read_session(session_id)
            tokens, left = self._due(session)
            if left.compact or not done:
                self._fruitless.set(session_id, (session.counters.messages, tokens, left.compact))
        return done

    async def _descend(self, session_id: str, wanted: Due, done: list[str]) -> None:
        """The ladder of the settings: prune, prune harder, summarize, prune to the mark; each as far as it is due."""
        access = self._access
        session = await access.read_session(session_id)
        settings = access.settings(session)
        if wanted.prune and not binds(session.model):
            if results_due(session.counters, settings):
                done += (await prune_oldest(access, session_id)).said
            else:
                done += (await prune_tool_outputs(access, session_id)).said
            hard = settings.prune_keep_last_hard
            if hard is not None and (await self._still_due(session_id)).compact:
                done += (await prune_tool_outputs(access, session_id, keep_last=hard, minimum_tokens=0)).said
        if not (await self._still_due(session_id)).compact:
            return
        compacted = await compact_session(access, session_id, strategy=_strategy(session, settings), always=False)
        if compacted.compacted:
            done += compacted.said
            done += [compacted.note] if compacted.note else []
        elif settings.low_water is not None and compacted.reason != RUNNING:
            done += (await take(access, session_id, mark_step, needed=True)).said

    async def _still_due(self, session_id: str) -> Due:
        return self._due(await self._access.read_session(session_id))[1]

    def _due(self, session: Session) -> tuple[int, Due]:
        """The tokens that thresholds look at, and what is due."""
        settings, budget = self._access.limits(session)
        tokens = own_tokens(session, settings)
        return tokens, due(session.counters, tokens, budget, settings)


@contextmanager
def _harmless(session_id: str) -> Iterator[None]:
    """Log an error. The messages are stored: a bug here must not make the recording look failed."""
    try:
        yield
    except ContextstashError as error:
        logger.warning("automatic management of %s failed: %s", session_id, error)
    except Exception as error:
        logger.error("automatic management of %s broke off: %s", session_id, error_trace(error))


def _strategy(session: Session, settings: ContextSettings) -> str:
    """A followed client compacts its window itself: `auto` does not make its user pay for a second model."""
    return "extractive" if session.source and settings.summarizer == "auto" else settings.summarizer
