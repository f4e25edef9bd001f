"""A session's own layer of settings: changes it, and opens a session with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from contextstash.record.batches import Batch, ensure_session
from contextstash.results import ConfigureResult
from contextstash.session.access import Access
from contextstash.window.settings import DESTINATION, USERS_ALONE, UserSettings, resolve_settings, session_layer
from contextstash.writers.base import CONSENT
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Session


async def open_session(
    access: Access,
    session_id: str,
    *,
    default_format: Callable[[], str],
    settings: Mapping[str, Any] | None = None,
    format: str | None = None,
    **facts: Any,
) -> Session:
    """A session before its first message, created if it does not exist. Settings that differ from its own are changed.
    `facts` are model, agent, title and parent_session_id; `default_format` is called if there is no format."""
    settings = settings or {}
    resolve_settings(access.layer(facts.get("agent")), settings)
    known = await access.find(session_id)
    if known is None and format is None:
        format = default_format()
    session = await ensure_session(access, session_id, known, Batch(format=format, **facts))
    changed = {name: value for name, value in settings.items() if session.settings.get(name) != value}
    if changed:
        await configure(access, session_id, changed)
        session = await access.read_session(session_id)
    return session


async def configure(access: Access, session_id: str | None, settings: Mapping[str, Any]) -> ConfigureResult:
    """Change a session's own layer of settings; returns the settings then in force. Raises SessionNotFoundError."""
    session = await access.read_session(session_id)
    _check_destination(access, session.agent, settings)
    unknown = settings.keys() - UserSettings.model_fields.keys()
    layer = {
        name: value
        for name, value in {**session_layer(session.settings), **settings}.items()
        if value is not None or name in unknown
    }
    before = access.settings(session).model_dump()
    after = resolve_settings(access.layer(session.agent), layer).model_dump()
    if settings:  # a look at the pins changes nothing
        await access.store.update_session(session.session_id, settings=layer)
    return ConfigureResult(
        session_id=session.session_id,
        settings={name: after[name] for name in UserSettings.model_fields if after[name] is not None},
        changed=[name for name in UserSettings.model_fields if before[name] != after[name]],
    )


def _check_destination(access: Access, agent: str | None, settings: Mapping[str, Any]) -> None:
    """Raises BadInputError if the settings would send the session to a place that the user has not agreed to: its model
    may change a session's own settings."""
    for name in sorted(USERS_ALONE):
        if settings.get(name) is not None:
            what = "sets where sessions are sent" if name == DESTINATION else "is the user's alone"
            raise BadInputError(
                f"{name} {what}: no session can set it, only the user's own configuration"
                f" (contextstash.toml in the user's folder, CONTEXTSTASH_{name.upper()}, or --set)."
            )
    asked = settings.get("summarizer") == "anthropic" or settings.get("summarizer_model") is not None
    if asked and not access.may_call_model(agent):
        raise BadInputError(
            "A session cannot have a model called without the user's consent, which only the user's own configuration"
            f" gives: {CONSENT}. Without it, summarizer is auto or extractive."
        )
