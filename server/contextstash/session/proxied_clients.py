"""Whether a client's requests go through the proxy, so that our edits change what it sends."""

from __future__ import annotations

import time

from contextstash_storage.records import ProxiedSession, Session
from contextstash_storage.store import SessionStore

PROXIED_SECONDS = 24 * 3_600
"""How long after its last request a session counts as one that goes through the proxy. After a longer
pause its tools say again that they change only contextstash's view, until its next request."""


def is_current(proxied: ProxiedSession | None, now: float | None = None) -> bool:
    """Whether a session still goes through the proxy. `now` is in seconds since 1970."""
    return proxied is not None and proxied.last_at >= (time.time() if now is None else now) - PROXIED_SECONDS


async def sends_own_history(store: SessionStore, session: Session) -> bool:
    """Whether the session's client is followed and sends its history unedited: its requests do not go through the
    proxy, or the proxy no longer edits them."""
    if session.source is None:
        return False
    proxied = await store.get_proxied(session.session_id)
    return proxied is None or bool(proxied.left_alone) or not is_current(proxied)
