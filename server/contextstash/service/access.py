"""What every use case starts from: whose sessions these are, how they are set up, and their view."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contextstash.context.settings import ContextSettings, resolve_settings
from contextstash.context.tokens import Counter, counter_for
from contextstash.context.triggers import Room, room_of
from contextstash.context.view import Entry, Overlay, edits_in_force, lay
from contextstash.formats import get_format
from contextstash.formats.base import Format
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Edit, Message, Native, Output, Session
from contextstash_storage.store import SessionStore

CLAUDE_CODE = "claude-code"
CLAUDE_CODE_WINDOW = 200_000
"""Claude Code uses this much of a larger window, unless the model's name ends in [1m] or it reported more."""

CurrentSession = Callable[[], Awaitable[str | None]]


@dataclass(frozen=True)
class Desk:
    """A session laid out to be worked on: its edits, its view, its outputs, and the numbers in force."""

    session: Session
    settings: ContextSettings
    room: Room
    counter: Counter
    format: Format
    edits: tuple[Edit, ...]
    overlay: Overlay
    entries: tuple[Entry, ...]
    outputs: Mapping[tuple[int, int], Output]


class Access:
    """One owner's way into the store."""

    def __init__(
        self,
        store: SessionStore,
        *,
        owner: str = "local",
        settings: Mapping[str, Any] | None = None,
        current_session: CurrentSession | None = None,
    ) -> None:
        self.store = store
        self.owner = owner
        self.layer = dict(settings or {})
        self._current_session = current_session
        self._settings = resolve_settings(self.layer)
        self._counters: dict[tuple[str, str | None], Counter] = {}

    async def session_id(self, given: str | None) -> str:
        """The session meant: the one named, else the current one of the client that is followed."""
        if given:
            return given
        current = await self.current_session_id()
        if current is None:
            raise BadInputError(
                "Which session? Pass session_id (list_sessions or the resource context://sessions names them),"
                " or start the server with --follow so that it knows the current one."
            )
        return current

    async def current_session_id(self) -> str | None:
        """The session of the client that is followed, None where none is."""
        return await self._current_session() if self._current_session else None

    async def session(self, given: str | None) -> Session:
        """The session meant, as it is now. Raises SessionNotFoundError."""
        return await self.store.get_session(self.owner, await self.session_id(given))

    def settings(self, session: Session | None = None) -> ContextSettings:
        """The settings in force for a session: the server's layer, then the session's own."""
        if session is None or not session.settings:
            return self._settings
        return resolve_settings(self.layer, session.settings)

    def room(self, settings: ContextSettings, model: str | None, session: Session | None = None) -> Room:
        """The window and the numbers that follow from it: as set, else by model."""
        if settings.window is not None:
            return room_of(settings, settings.window)
        from contextstash.models import model_facts

        window = model_facts(model).window
        if session is not None and session.agent == CLAUDE_CODE and "[1m]" not in (model or ""):
            seen = session.counters.reported or 0
            window = min(window, CLAUDE_CODE_WINDOW) if seen <= CLAUDE_CODE_WINDOW else window
        return room_of(settings, window)

    def counter(self, settings: ContextSettings, model: str | None) -> Counter:
        """The token counter for a model."""
        kind = (settings.estimator, model)
        if kind not in self._counters:
            self._counters[kind] = counter_for(model, settings, _encoder)
        return self._counters[kind]

    async def desk(self, given: str | None) -> Desk:
        """Lay a session out: its view without message bodies."""
        session = await self.session(given)
        settings = self.settings(session)
        edits = await self.store.read_edits(self.owner, session.session_id)
        overlay = edits_in_force(edits)
        messages = await self.visible_messages(session, overlay, bodies=False)
        outputs = await self.store.read_outputs(self.owner, session.session_id)
        return Desk(
            session=session,
            settings=settings,
            room=self.room(settings, session.model, session),
            counter=self.counter(settings, session.model),
            format=get_format(session.format or "openai-chat"),
            edits=tuple(edits),
            overlay=overlay,
            entries=tuple(lay(messages, overlay)),
            outputs={(output.seq, output.block): output for output in outputs},
        )

    async def visible_messages(self, session: Session, overlay: Overlay, *, bodies: bool) -> list[Message]:
        """The messages that no summary or rewind hides."""
        messages: list[Message] = []
        for first, last in overlay.visible_ranges(session.counters.messages):
            messages += await self.store.read_messages(
                self.owner, session.session_id, first=first, last=last, bodies=bodies
            )
        return messages

    async def body(self, session_id: str, seq: int) -> Native:
        """The native JSON of one message."""
        [message] = await self.store.read_messages(self.owner, session_id, first=seq, last=seq)
        return message.body or {}

    async def output_text(self, session: Session, output: Output) -> str:
        """The whole original text of a tool output."""
        native = await self.body(session.session_id, output.seq)
        return get_format(session.format or "openai-chat").read(native).texts[output.block]


def _encoder(name: str) -> Callable[[str], int]:
    from contextstash.tokenizer import count_with

    return count_with(name)


def as_json(value: object) -> str:
    """Compact JSON, key order kept."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
