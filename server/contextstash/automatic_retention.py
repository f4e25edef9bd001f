"""Retention without a command: the server and the proxy delete what is beyond the user's limits once a day.

The first time it is only announced. What was announced or deleted stands in a file next to the database, and
`contextstash sessions` and `contextstash doctor` say it. Only limits of the user's own configuration count: with a
project's file, the author of a repository could have all sessions deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, BaseModel

from contextstash.base.atomic_file import replace_file
from contextstash.outputs.counts import counted
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.results import RetainResult
    from contextstash.stash import Stash
    from contextstash.window.settings import ContextSettings

BEGIN_SECONDS = 20.0
"""How long after the database is opened: starting a session must not wait for it."""

EACH = timedelta(days=1)
"""How often it is done at most. A session recorded within this time is not deleted, whatever the limits say."""

NOTICE = timedelta(days=3)
"""The time from the announcement to the first deletion: a weekend without the machine is not enough to miss it."""

LAPSE = timedelta(days=14)
"""An announcement holds no longer than this after the limits were last looked at: who takes them away and sets them
again later is told again, and so is who comes back from a holiday."""

LIMIT = "keep_days"
"""The setting that says how long sessions are kept."""

logger = logging.getLogger(__name__)
_running: set[asyncio.Task[None]] = set()


class _State(BaseModel):
    """When the limits were last looked at, those that were announced, how many sessions they were to delete from when
    on, and the message about it."""

    looked: AwareDatetime | None = None
    limits: dict[str, Any] | None = None
    begin: AwareDatetime | None = None
    announced: int = 0
    said: str | None = None


def automatic_retention(database: Path | None, of_user: Mapping[str, Any]) -> Callable[[Stash], None] | None:
    """The function to call with the stash when a long-running process has opened it; None without a limit among
    the user's own settings, or no file: a database on a server is used by many, and a scheduled `contextstash retain
    --yes` is for that."""
    from contextstash.window.settings import resolve_settings

    own = {name: value for name, value in of_user.items() if name == LIMIT}
    if database is None:
        return None
    if not own:
        _take_back(database)
        return None
    settings = resolve_settings(own)

    def begin(stash: Stash) -> None:
        task = asyncio.create_task(_later(stash, database, settings))
        _running.add(task)
        task.add_done_callback(_running.discard)

    return begin


def _take_back(database: Path) -> None:
    """Forget what was announced, once the user has taken the limits away: set again, they are announced again."""
    file = _file(database)
    state = _state(file)
    if state.limits is not None:
        kept = _State(looked=state.looked, said=None if state.announced else state.said)
        with suppress(OSError):  # of another user
            _write(file, kept)


async def _later(stash: Stash, database: Path, settings: ContextSettings) -> None:
    await asyncio.sleep(BEGIN_SECONDS)
    try:
        await carry_out(stash, database, settings, datetime.now(UTC))
    except (ContextstashError, OSError, ValueError) as error:  # closed meanwhile, locked, full: tomorrow again
        logger.warning("retention was not carried out: %s", error)


async def carry_out(stash: Stash, database: Path, settings: ContextSettings, now: datetime) -> None:
    """Announce what the limits would delete, or delete it if it was announced; at most once a day."""
    file = _file(database)
    state = _state(file)
    since = None if state.looked is None else abs(now - state.looked)
    if since is not None and since < EACH:
        return
    _write(file, state.model_copy(update={"looked": now}))  # first: two processes shall not do it at the same time
    found = await stash.retain(now, settings=settings, spare=EACH)
    if not found.sessions:
        return
    limits = settings.model_dump(mode="json", include={LIMIT})
    if (since is not None and since > LAPSE) or state.limits != limits or _is_unusual(found, state.announced):
        begin = now + NOTICE
        said = (
            f"{counted(len(found.sessions), 'session')} of {len(found.sessions) + found.kept} will be deleted from"
            f" {begin:%Y-%m-%d} on, by the limits that you set: contextstash retain lists them. Change the limits, or"
            " pin a session (contextstash pin), to keep them."
        )
        state = state.model_copy(update={"limits": limits, "begin": begin, "announced": len(found.sessions)})
    elif state.begin is None or now < state.begin:
        return
    else:
        done = await stash.retain(now, settings=settings, spare=EACH, dry_run=False)
        days = sorted(line.last_recorded[:10] for line in done.sessions)
        said = (
            f"{counted(len(days), 'session')} deleted on {now:%Y-%m-%d} by the limits that you set, last recorded"
            f" {days[0]} to {days[-1]}."
        )
        state = state.model_copy(update={"announced": 0})
    logger.warning("retention: %s", said)
    _write(file, state.model_copy(update={"looked": now, "said": said}))


def _is_unusual(found: RetainResult, announced: int) -> bool:
    """Whether more would be deleted than a day brings: most of the sessions, for example if a clock is wrong."""
    count = len(found.sessions)
    return count > found.kept and count > 2 * announced


def news(database: Path | None, *, now: datetime | None = None, is_read: bool = True) -> str | None:
    """The message about the automatic retention: of a deletion once, if a person reads it; of one that comes, until
    it comes, since a call by an agent or a script may be the first to be told."""
    if database is None:
        return None
    file = _file(database)
    state = _state(file)
    now = now or datetime.now(UTC)
    if state.said is not None and is_read and (state.begin is None or now >= state.begin):
        with suppress(OSError):  # of another user: it is said again
            _write(file, state.model_copy(update={"said": None}))
    return state.said and f"Retention: {state.said}"


def _file(database: Path) -> Path:
    return database.with_name(f"{database.name}.retention")


def _state(file: Path) -> _State:
    try:
        return _State.model_validate_json(file.read_bytes())
    except (OSError, ValueError):  # not there, or damaged: then it is announced again
        return _State()


def _write(file: Path, state: _State) -> None:
    replace_file(file, state.model_dump_json(exclude_none=True).encode())
