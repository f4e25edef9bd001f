"""Managing by itself: after a recording, prune and compact where a level is reached, and log what happened."""

from __future__ import annotations

import logging

from contextstash.service.access import Access
from contextstash.service.compacting import compact
from contextstash.service.estimating import estimate_session
from contextstash.service.pruning import prune
from contextstash.service.results import Estimate
from contextstash_storage.errors import ContextstashError
from contextstash_storage.records import Event, Session

logger = logging.getLogger(__name__)

RETRY_GROWTH = 0.05
"""Where nothing could be done, it is tried again once the context has grown by this share of usable."""


class AutomaticCare:
    """Prunes and compacts sessions as they grow; remembers where that was of no use."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._tried_at: dict[str, int] = {}

    async def after_recording(self, session: Session) -> tuple[Estimate, list[str]]:
        """The session's state once taken care of, and what was done. A failure here never fails the recording."""
        estimate = await estimate_session(self._access, session)
        settings = self._access.settings(session)
        if estimate.level != session.counters.level:
            await self._log_level(session, estimate)
        if not settings.automatic or session.source or estimate.level == "ok":
            return estimate, []
        tried = self._tried_at.get(session.session_id)
        if tried is not None and 0 <= estimate.tokens - tried < RETRY_GROWTH * estimate.usable:
            return estimate, []
        try:
            done = await self._care(session.session_id)
        except ContextstashError as error:
            logger.warning("automatic management of %s failed: %s", session.session_id, error)
            return estimate, []
        session = await self._access.session(session.session_id)
        after = await estimate_session(self._access, session)
        if after.level != "ok":
            self._tried_at[session.session_id] = after.tokens
        if after.level != session.counters.level:
            await self._log_level(session, after)
        return after, done

    async def _care(self, session_id: str) -> list[str]:
        done = []
        pruned = await prune(self._access, session_id)
        if pruned.tokens_saved:
            done.append(f"{pruned.reason} {pruned.tokens_before:,} -> {pruned.tokens_after:,} tokens.")
        state = await estimate_session(self._access, await self._access.session(session_id))
        if state.level in ("compact", "critical", "overflow"):
            compacted = await compact(self._access, session_id)
            if compacted.compacted:
                done.append(f"{compacted.reason} {compacted.tokens_before:,} -> {compacted.tokens_after:,} tokens.")
        return done

    async def _log_level(self, session: Session, estimate: Estimate) -> None:
        event = Event(
            kind="level",
            tokens_before=estimate.tokens,
            tokens_after=estimate.tokens,
            messages_before=session.counters.view_messages,
            messages_after=session.counters.view_messages,
            reason=f"Level {session.counters.level} -> {estimate.level}: {estimate.percent} % of {estimate.usable:,}.",
        )
        await self._access.store.append_event(self._access.owner, session.session_id, event, level=estimate.level)
