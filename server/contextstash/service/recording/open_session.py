"""Opens a session before its first message is recorded, with the settings that the caller wants for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from contextstash.context.window.settings import resolve_settings
from contextstash.service.queries.sessions import configure
from contextstash.service.recording.messages import check_session_id, ensure_session
from contextstash.service.session_access import Access
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Session


async def open_session(
    access: Access,
    session_id: str,
    default_format: Callable[[], str],
    settings: Mapping[str, Any],
    facts: Mapping[str, str | None],
) -> Session:
    """The session of this id, created if it does not exist; `default_format` is called only then, and only if `facts`
    name no format. Settings that differ from the session's own are changed."""
    check_session_id(session_id)
    resolve_settings(access.layer(facts.get("agent")), settings)
    known: Session | None = None
    with suppress(SessionNotFoundError):
        known = await access.store.get_session(session_id)
    given: dict[str, Any] = dict(facts)
    if known is None and given.get("format") is None:
        given["format"] = default_format()
    session = await ensure_session(access, session_id, (), known=known, **given)
    changed = {name: value for name, value in settings.items() if session.settings.get(name) != value}
    if changed:
        await configure(access, session_id, changed)
        session = await access.session(session_id)
    return session
