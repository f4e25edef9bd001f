"""Pins of a session: adds and removes them, and brings what is pinned back into the view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contextstash.context.view.pinned_outputs import HANDLE_PREFIX, outputs_of_pins, pinned_outputs
from contextstash.context.window.settings import session_layer
from contextstash.service.queries import sessions
from contextstash.service.reduction.restore import restore
from contextstash.service.results import ConfigureResult
from contextstash.service.session_access import Access
from contextstash_storage.errors import HandleNotFoundError, SessionNotFoundError
from contextstash_storage.handles import resolved
from contextstash_storage.records import ArchiveEdit


@dataclass(frozen=True, slots=True)
class PinChange:
    """Pins to add and to remove: handles of outputs, or paths of files."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


async def configure(
    access: Access, session_id: str | None, settings: Mapping[str, Any], pins: PinChange
) -> ConfigureResult:
    """Change a session's own layer of settings, and its pins. What is pinned and archived is restored; what a summary
    replaces follows the next summary. Raises HandleNotFoundError if the session has no output with a handle."""
    if pins == PinChange():
        return await sessions.configure(access, session_id, settings)
    own = settings["pin"] if settings.get("pin") else await _pins_of(access, session_id)
    pins = PinChange(await _known_pins(access, session_id, pins.add), pins.remove)
    wanted = [pin for pin in dict.fromkeys((*own, *pins.add)) if pin not in pins.remove]
    result = await sessions.configure(access, session_id, {**settings, "pin": wanted or None})
    notes = [result.note, await _bring_back(access, result.session_id, pins.add) if pins.add else None]
    return result.model_copy(update={"note": " ".join(note for note in notes if note) or None})


async def _pins_of(access: Access, session_id: str | None) -> tuple[str, ...]:
    """The pins in force, since a session's own list replaces that of the server's settings."""
    try:
        session = await access.session(session_id)
    except SessionNotFoundError:
        return access.settings().pin
    return access.settings(session.model_copy(update={"settings": session_layer(session.settings)})).pin


async def _known_pins(access: Access, session_id: str | None, pins: tuple[str, ...]) -> tuple[str, ...]:
    """The pins, their handles as the session has them. Raises HandleNotFoundError."""
    if not any(pin.startswith(HANDLE_PREFIX) for pin in pins):
        return pins
    session = await access.session(session_id)
    known = {output.handle for output in await access.store.read_outputs(session.session_id)}
    found = tuple(resolved(pin, known) if pin.startswith(HANDLE_PREFIX) else pin for pin in pins)
    for pin in found:
        if pin.startswith(HANDLE_PREFIX) and pin not in known:
            raise HandleNotFoundError(
                f"Session {session.session_id} has no output '{pin}'. search_history finds handles."
            )
    return found


async def _bring_back(access: Access, session_id: str, added: tuple[str, ...]) -> str | None:
    """Restore the pinned outputs that are archived. A note about those that a summary replaces, and about files that
    no output shows."""
    snapshot = await access.snapshot(session_id)
    pinned = pinned_outputs(snapshot)
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
    if unknown := [pin for pin in added if not outputs_of_pins([pin], snapshot.current_outputs)]:
        notes.append(f"No output shows {', '.join(unknown)} so far: the next one that does will stay.")
    if summarized:
        notes.append(
            f"Summarized already, so shown again only with the next summary: {', '.join(summarized)}."
            " get_archived_output reads them now."
        )
    return " ".join(notes) or None
