"""A session's own layer of settings, its pins among them: changed, and what is pinned brought back into the view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contextstash.handoff.user_block import RULE_PREFIX, pinned_rules, rules_block, shown_by
from contextstash.record.messages import Batch, ensure_session
from contextstash.reduce.compact import keeps_words
from contextstash.reduce.prune import restore
from contextstash.results import ConfigureResult
from contextstash.session.access import Access
from contextstash.session.edit import Planned, binds, edit
from contextstash.view.ladder import last_anchor
from contextstash.view.session_snapshot import digest_edit, is_handle, outputs_of_pins
from contextstash.window.settings import DESTINATION, USERS_ALONE, UserSettings, resolve_settings, session_layer
from contextstash.writers import CONSENT
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.records import ArchiveEdit, Session


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
    `facts` are model, agent, title and parent_session_id; `default_format` is called if none is named."""
    settings = settings or {}
    resolve_settings(access.layer(facts.get("agent")), settings)
    known = await access.find(session_id)
    if known is None and format is None:
        format = default_format()
    session = await ensure_session(access, session_id, known, Batch(format=format, **facts))
    changed = {name: value for name, value in settings.items() if session.settings.get(name) != value}
    if changed:
        await _configure(access, session, changed)
        session = await access.read_session(session_id)
    return session


async def configure_session(
    access: Access,
    session_id: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    pin: Sequence[str] | None = None,
    unpin: Sequence[str] | None = None,
) -> ConfigureResult:
    """Change a session's own layer of settings; a value of None removes the setting from it. `pin` and `unpin` add
    handles of outputs, paths of files or rules (`rule: …`) to its pins, and remove them. What is pinned and archived is
    restored; what a summary replaces follows the next summary; a rule is in the next view. Raises HandleNotFoundError
    if the session has no output with a handle."""
    session = await access.read_session(session_id)
    settings, pin, unpin = settings or {}, [each.strip() for each in pin or ()], [each.strip() for each in unpin or ()]
    if not pin and not unpin:
        return await _configure(access, session, settings)
    if handles := [each for each in pin if is_handle(each)]:
        known = {output.handle for output in await access.store.read_outputs(session.session_id)}
        if missing := [handle for handle in handles if handle not in known]:
            raise HandleNotFoundError(
                f"Session {session.session_id} has no output '{missing[0]}'. search_history finds handles."
            )
    # A session's own list replaces that of the server's settings.
    own = settings.get("pin") or access.settings(session).pin
    wanted = [each for each in dict.fromkeys((*own, *pin)) if each not in unpin]
    result = await _configure(access, session, {**settings, "pin": wanted or None})
    await edit(access, lambda: _rules_shown(access, session.session_id))
    note = await _bring_back(access, session.session_id, pin) if pin else None
    return result.model_copy(update={"note": note})


async def _configure(access: Access, session: Session, settings: Mapping[str, Any]) -> ConfigureResult:
    """Change a session's own layer of settings; returns the settings then in force. Raises SessionNotFoundError."""
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


async def _rules_shown(access: Access, session_id: str) -> Planned[None] | None:
    """The plan to show pinned rules that the view does not show yet at its end, so that what was sent before stays as
    it was. The next compaction moves them to the user's words at the head. A model that binds its reasoning to what was
    sent gets them with that if they cannot stand at the end."""
    snapshot = await access.snapshot(session_id)
    entries, anchor = snapshot.entries, last_anchor(snapshot.entries)
    shown = shown_by(entry.user_words for entry in entries if entry.user_words)
    text = rules_block(pinned_rules(snapshot.settings.pin), shown.rules) if keeps_words(snapshot.settings) else ""
    if not text or anchor is None or (entries[-1].last_seq != anchor and binds(snapshot.session.model)):
        return None
    # It belongs to no output and no summary.
    return Planned(snapshot, [digest_edit(snapshot, anchor, text, ("pinned",))], lambda *_: None)


async def _bring_back(access: Access, session_id: str, added: Sequence[str]) -> str | None:
    """Restore the pinned outputs that are archived. A note about those that a summary replaces, and about files that
    no output shows."""
    snapshot = await access.snapshot(session_id)
    pinned = snapshot.pinned
    shown = {entry.message.seq for entry in snapshot.entries if entry.message}
    archived = [
        output.handle
        for place, output in pinned.items()
        if place[0] in shown and isinstance(snapshot.overlay.replaced.get(place), ArchiveEdit)
    ]
    if archived:
        await restore(access, archived, session_id)
    summarized = [output.handle for place, output in pinned.items() if place[0] not in shown]
    notes = []
    outputs = [pin for pin in added if not pin.startswith(RULE_PREFIX)]
    if unknown := [pin for pin in outputs if not outputs_of_pins([pin], snapshot.current_outputs)]:
        notes.append(f"No output shows {', '.join(unknown)} so far: the next one that does will stay.")
    if summarized:
        notes.append(
            f"Summarized already, so shown again only with the next summary: {', '.join(summarized)}."
            " get_archived_output reads them now."
        )
    return " ".join(notes) or None
