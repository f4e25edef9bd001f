"""Access to one owner's sessions: which one a call refers to, the settings in force for it, snapshots of it, and the
estimate of how full its window is."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from typing import Any, TypedDict, TypeVar, Unpack
from weakref import WeakValueDictionary

from contextstash.messages.detection import detect_format, get_format
from contextstash.outputs.limits import OutputLimits
from contextstash.results import Estimate, Trigger
from contextstash.session.open_session import READ_AT_ONCE, WHOLE, Known, OpenSession, Scope
from contextstash.view.session_snapshot import (
    Beyond,
    SessionSnapshot,
    breakdown,
    count_message,
    estimate,
    fixed_tokens,
)
from contextstash.window import thresholds
from contextstash.window.settings import ContextSettings, consenting, resolve_settings, session_layer
from contextstash.window.thresholds import WindowBudget, budget_of
from contextstash.window.token_counters import Counter, counter_for, measure
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from contextstash_storage.records import (
    Counters,
    Message,
    Native,
    NewMessage,
    Output,
    ProxiedSession,
    Session,
    check_session_id,
)
from contextstash_storage.store import SessionStore

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(OrderedDict[Key, Value]):
    """The values of the last `limit` keys that were set, in this order; the oldest is removed first."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def set(self, key: Key, value: Value) -> Value:
        """Store the value in place of an earlier one, and return it."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)
        return value


Calls = dict[str, tuple[str, str]]
"""Tool name and main argument by call id."""

HostWindow = Callable[[str | None, int], int | None]
"""Tokens of its model's window that a host uses, given the model's name and the tokens that were last reported; None
for the whole window."""

SettingsFor = Callable[[str | None], Mapping[str, Any]]
"""The server's layer of settings for an agent by its name."""

MAX_OPEN, MAX_RECORDED = 16, 64
"""Sessions whose messages, and whose newest calls, are kept in memory; others are read from the database again."""

MAX_REMEMBERED_NAMES = 256
"""Layers of settings that were resolved; callers may name any number of them."""

PROXIED_SECONDS = 24 * 3_600
"""How long after its last request a session counts as one that goes through the proxy. After a longer
pause its tools say again that they change only contextstash's view, until its next request."""


class AccessOptions(TypedDict, total=False):
    """Facts about a stash's user and host.

    `settings` is the server's layer, or a function that returns it for an agent's name. `api_key` is for the model that
    writes summaries. `consent` returns, for an agent's name, whether the user lets a model be called; without it,
    passing a key is consent, and so is a consenting setting. `current_session` is called if a call names no session.
    `host_windows` are those of hosts that do not use their model's whole window, by the agent's name; `project_of`
    returns the folder that a client ran in, given its transcript.
    """

    settings: Mapping[str, Any] | SettingsFor | None
    api_key: str | None
    consent: Callable[[str | None], bool] | None
    current_session: Callable[[], Awaitable[str | None]] | None
    host_windows: Mapping[str, HostWindow] | None
    project_of: Callable[[str], str | None] | None


class Access:
    """One owner's sessions. All methods raise ContextstashError and nothing else on purpose."""

    def __init__(self, store: SessionStore, **options: Unpack[AccessOptions]) -> None:
        settings = options.get("settings") or {}
        self.store = store
        self.api_key = options.get("api_key")
        self.loaded: set[str] = set()
        """Counters whose vocabulary is loaded: at the first use that takes 0.3 s."""
        self.options = options
        self.layer: SettingsFor = settings if callable(settings) else lambda _: settings
        """The server's layer of settings for an agent. Raises BadInputError if a settings file is invalid."""
        self._open: BoundedCache[str, OpenSession] = BoundedCache(MAX_OPEN)
        self.calls: BoundedCache[str, tuple[int, Calls]] = BoundedCache(MAX_RECORDED)
        """The newest tool calls of sessions when they had so many messages."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._resolved: BoundedCache[str, tuple[Mapping[str, Any], ContextSettings]] = BoundedCache(
            MAX_REMEMBERED_NAMES
        )
        if not callable(settings):
            resolve_settings(settings)

    # Which session.

    async def session_id(self, given: str | None) -> str:
        """The id of the session a call refers to: the given one, or else the followed client's current session."""
        current = given or await self.current_session_id()
        if current is None:
            raise BadInputError(
                "Which session? Pass session_id (the resource context://sessions lists them),"
                " or start the server with --follow so that it knows the current one."
            )
        return current

    async def current_session_id(self) -> str | None:
        """The current session of the followed client; None if no client is followed."""
        current = self.options.get("current_session")
        return await current() if current else None

    async def read_session(self, session_id: str | None) -> Session:
        """The session a call refers to, as stored now: agent, model, settings of its own. Raises
        SessionNotFoundError."""
        return await self.store.get_session(await self.session_id(session_id))

    async def find(self, name: str | None) -> Session | None:
        """The session of this id, None if it does not exist. Raises BadInputError if no session can have this id."""
        if name is not None:
            check_session_id(name)
            with suppress(SessionNotFoundError):
                return await self.store.get_session(name)
        return None

    async def was_deleted(self, name: str, marks: Sequence[str] = ()) -> bool:
        """Whether a client that would begin this session goes on with one that was deleted: see DeletedSession."""
        deleted = await self.store.deleted_sessions()
        return any(each.is_continued_by(name, marks) for each in deleted)

    async def proxied(self, name: str) -> ProxiedSession | None:
        """What is known of a session's requests; None if it does not exist or none went through the proxy."""
        with suppress(SessionNotFoundError):
            return await self.store.get_note(name, ProxiedSession)
        return None

    def lock(self, name: str) -> asyncio.Lock:
        """The lock that whoever records into a session holds: batches of one session wait for each other."""
        return self._locks.setdefault(name, asyncio.Lock())  # kept as long as a task holds it or waits for it

    async def sends_own_history(self, session: Session) -> bool:
        """Whether the session's client is followed and sends its history unedited: its requests do not go through the
        proxy, or the proxy no longer edits them."""
        if session.source is None:
            return False
        proxied = await self.proxied(session.session_id)
        return proxied is None or bool(proxied.left_alone) or not is_current(proxied)

    # What is in force for it.

    def settings(self, session: Session | None = None) -> ContextSettings:
        """The settings in force for a session: the server's layer for its agent, then the session's own. Each two
        layers are resolved once."""
        agent, own = (None, {}) if session is None else (session.agent, session.settings)
        layer = self.layer(agent)
        key = f"{agent}\n{own}"
        known = self._resolved.get(key)
        if known is None or known[0] != layer:
            known = self._resolved.set(key, (dict(layer), resolve_settings(layer, session_layer(own))))
        return known[1]

    def may_call_model(self, agent: str | None) -> bool:
        """Whether the user has agreed that a model is called for an agent's sessions."""
        asked = self.options.get("consent")
        if asked:
            return asked(agent)
        return self.api_key is not None or consenting(self.layer(agent)) is not None

    def reaches_model(self, agent: str | None, settings: ContextSettings) -> bool:
        """Whether a model may be called for an agent's sessions, and a key or a base URL is configured."""
        return self.may_call_model(agent) and bool(self.api_key or settings.summarizer_base_url)

    def budget(self, settings: ContextSettings, model: str | None, session: Session | None = None) -> WindowBudget:
        """The window and the numbers that follow from it: as set, else as the host says, else by model."""
        fixed = fixed_tokens(session.counters, settings) if session is not None else 0
        window, known = settings.window, True
        if window is None and session is not None:
            window = session.counters.host_window
        if window is None:
            from contextstash.window.models import DEFAULT_WINDOW, window_of

            found = window_of(model)
            window, known = found or DEFAULT_WINDOW, found is not None
            host_window = (self.options.get("host_windows") or {}).get(session.agent or "") if session else None
            if session is not None and host_window is not None:
                window = min(window, host_window(model, session.counters.reported or 0) or window)
        return budget_of(settings, window, known=known, fixed=fixed)

    def limits(self, session: Session) -> tuple[ContextSettings, WindowBudget]:
        """The settings in force for a session, and the numbers that follow from them."""
        settings = self.settings(session)
        return settings, self.budget(settings, session.model, session)

    def output_limits(self, settings: ContextSettings, session: Session | None) -> OutputLimits:
        """The limits of an output, scaled to the window."""
        budget = self.budget(settings, session.model if session else None, session)
        return OutputLimits.of(settings, budget.window - (budget.usable - budget.free))

    def counter(self, settings: ContextSettings, model: str | None) -> Counter:
        """The token counter for a model."""
        from contextstash.tokenizer import count_with

        return counter_for(model, settings, count_with)

    # What is in it.

    def opened(self, name: str) -> OpenSession:
        """The session of this id in memory."""
        return self._open.set(name, self._open.get(name) or OpenSession(self.store, name))

    async def snapshot(self, given: str | None, scope: Scope = WHOLE) -> SessionSnapshot:
        """A snapshot of a session: its view, without message bodies unless the scope says so."""
        return await self.snapshot_of(await self.known(given), scope)

    async def known(self, given: str | None) -> Known:
        """The session that a call refers to, as stored now, with its edits. Raises SessionNotFoundError."""
        return await self.opened(await self.session_id(given)).now()

    async def snapshot_of(self, known: Known, scope: Scope) -> SessionSnapshot:
        """A snapshot of a session as it is known."""
        session, settings = known.session, self.settings(known.session)
        counter = self.counter(settings, session.model)
        opened = self.opened(session.session_id)
        usable = lambda: self.limits(session)[1].usable  # noqa: E731 - found only if it is needed
        entries, beyond = await opened.view(known, settings, counter, scope, usable) if scope.view else ((), Beyond())
        if scope.all_outputs or (settings.pin and scope.view):
            recorded = await self.store.read_outputs(session.session_id)
            outputs = {(output.seq, output.block): output for output in recorded}
        else:
            outputs = await opened.outputs(known, [entry.message for entry in entries if entry.message])
        return SessionSnapshot(
            session=session,
            settings=settings,
            find_budget=lambda: self.limits(session)[1],
            counter=counter,
            format=get_format(session.format),
            edits=known.edits,
            overlay=known.overlay,
            entries=entries,
            outputs=outputs,
            proxied=session.source is not None and not await self.sends_own_history(session),
            beyond=beyond,
        )

    async def from_texts(
        self,
        snapshot: SessionSnapshot,
        outputs: Sequence[Output],
        work: Callable[[Sequence[tuple[Output, str]]], list[Value]],
    ) -> list[Value]:
        """What `work` makes of outputs in order of position, each with its full original text. It is called in a thread
        with a batch of them at a time: together they may be larger than the memory."""
        made: list[Value] = []
        held = snapshot.messages_with_bodies
        for start in range(0, len(outputs), READ_AT_ONCE):
            batch = outputs[start : start + READ_AT_ONCE]
            bodies = {output.seq: held[output.seq].body or {} for output in batch if output.seq in held}
            if missing := {output.seq for output in batch} - bodies.keys():
                bodies |= await self.store.read_bodies(snapshot.session_id, missing)

            def of_batch(batch: Sequence[Output] = batch, bodies: Mapping[int, Native] = bodies) -> list[Value]:
                texts = {seq: snapshot.format.read(body).texts for seq, body in bodies.items()}
                return work([(output, texts[output.seq][output.block]) for output in batch])

            made += await asyncio.to_thread(of_batch)
        return made

    async def messages_at(self, snapshot: SessionSnapshot, seqs: Iterable[int]) -> list[Message]:
        """Messages with their bodies, in order; those that the snapshot holds with a body are not read again."""
        held = snapshot.messages_with_bodies
        wanted = sorted(seqs)
        missing = [seq for seq in wanted if seq not in held]
        read = await self.store.read_messages(snapshot.session_id, at=missing) if missing else []
        return list(merge([held[seq] for seq in wanted if seq in held], read, key=lambda message: message.seq))


def is_current(proxied: ProxiedSession) -> bool:
    """Whether a session still goes through the proxy."""
    return proxied.last_at >= time.time() - PROXIED_SECONDS


# How full a session's window is.


async def estimate_session(access: Access, session: Session, model: str | None = None) -> Estimate:
    """The estimate from the session's running counters alone, so that it takes the same time for a session of any
    length."""
    followed = await access.sends_own_history(session)
    found = _estimate(access, session.counters, session, model or session.model, followed=followed)
    view_tokens = session.counters.view_tokens if followed else None
    return found.model_copy(update={"session_id": session.session_id, "view_tokens": view_tokens})


async def tokens_by_part(access: Access, session: Session) -> dict[str, int]:
    """The tokens of an estimate by part. Asks for no window: to load the table of models takes longer than the rest."""
    counters, settings = session.counters, access.settings(session)
    followed = await access.sends_own_history(session)
    name = access.counter(settings, session.model).name
    tokens, _ = estimate(counters, settings, name, followed=followed)
    return breakdown(counters, tokens, followed=followed)


def estimate_messages(access: Access, natives: Sequence[Native], model: str | None) -> Estimate:
    """The estimate for these messages alone; nothing is recorded."""
    settings = access.settings()
    counter = access.counter(settings, model)
    fmt = get_format(detect_format(natives))
    counters = Counters()
    for seq, reading in enumerate(map(fmt.read, natives)):
        blocks = measure(reading, counter, settings)
        message = NewMessage(body={}, role=reading.role, blocks=blocks, usage=reading.usage, group=reading.group)
        counters = count_message(counters, message, seq)
    return _estimate(access, counters, None, model)


def _estimate(
    access: Access, counters: Counters, session: Session | None, model: str | None, *, followed: bool = False
) -> Estimate:
    settings = access.settings(session)
    budget = access.budget(settings, model, session)
    name = access.counter(settings, model).name
    tokens, method = estimate(counters, settings, name, followed=followed)
    level, since = thresholds.level_of(tokens, budget), thresholds.since_summary(counters)
    return Estimate.of(
        budget,
        tokens=tokens,
        percent=round(100 * tokens / budget.usable, 1),
        level=level,
        messages_trigger=_trigger(since, budget.messages_at) if budget.messages_at else None,
        tokens_trigger=_trigger(tokens, thresholds.automatic_threshold(budget, settings)),
        next_step=thresholds.next_step(level, followed=followed),
        method=method,
        model=model,
        breakdown=breakdown(counters, tokens, followed=followed),
    )


def _trigger(value: int, threshold: int) -> Trigger:
    return Trigger(value=value, threshold=threshold, percent=round(100 * value / threshold, 1))
