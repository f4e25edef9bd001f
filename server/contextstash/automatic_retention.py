"""Retention without a command: the server and the proxy delete what is older than `keep_days` once a day.

The first time it is only announced. What was announced or deleted stands in a file next to the database, and
`contextstash sessions` and `contextstash doctor` say it. Only the user's own configuration counts: with a project's
file, the author of a repository could have all sessions deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, BaseModel

from contextstash.base.files import replace_file
from contextstash.outputs.counts import counted
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash.window.settings import ContextSettings

BEGIN_SECONDS = 20.0
"""How long after the database is opened: starting a session must not wait for it."""

EACH = timedelta(days=1)
"""How often it is done at most. A session recorded within this time is not deleted, whatever the limit says."""

NOTICE = timedelta(days=3)
"""The time from the announcement to the first deletion: a weekend without the machine is not enough to miss it."""

LAPSE = timedelta(days=14)
"""An announcement holds no longer than this after the sessions were last looked at: who takes the limit away and sets
it again later is told again, who comes back from a holiday too, and so is everyone if a clock is wrong."""

LIMIT = "keep_days"

logger = logging.getLogger(__name__)
_running: set[asyncio.Task[None]] = set()


class _State(BaseModel):
    """When the sessions were last looked at, the limit that was announced, from when on it is carried out, and the
    message about it."""

    looked: AwareDatetime | None = None
    days: int | None = None
    begin: AwareDatetime | None = None
    said: str | None = None


def begin_retention(stash: Stash, database: Path | None, of_user: Mapping[str, Any]) -> bool:
    """Begin to delete in the background, when a long-running process has opened its stash. False without `keep_days`
    among the user's own settings, or no file: a database on a server is used by many, and a scheduled `contextstash
    retain --yes` is for that."""
    from contextstash.window.settings import resolve_settings

    if database is None:
        return False
    if LIMIT not in of_user:
        state = _state(_file(database))
        if state.days is not None:  # taken away: set again, it is announced again
            with suppress(OSError):  # of another user
                _write(_file(database), _State(looked=state.looked))
        return False
    task = asyncio.create_task(_later(stash, database, resolve_settings({LIMIT: of_user[LIMIT]})))
    _running.add(task)
    task.add_done_callback(_running.discard)
    return True


async def _later(stash: Stash, database: Path, settings: ContextSettings) -> None:
    await asyncio.sleep(BEGIN_SECONDS)
    try:
        await carry_out(stash, database, settings, datetime.now(UTC))
    except (ContextstashError, OSError, ValueError) as error:  # closed meanwhile, locked, full: tomorrow again
        logger.warning("retention was not carried out: %s", error)


async def carry_out(stash: Stash, database: Path, settings: ContextSettings, now: datetime) -> None:
    """Announce what the limit would delete, or delete it if it was announced; at most once a day."""
    file = _file(database)
    state = _state(file)
    since = None if state.looked is None else abs(now - state.looked)
    if since is not None and since < EACH:
        return
    _write(file, state.model_copy(update={"looked": now}))  # first: two processes shall not do it at the same time
    is_known = state.days == settings.keep_days and (since is None or since <= LAPSE)
    if is_known and (state.begin is None or now < state.begin):
        return
    found = await stash.retain(now, settings=settings, spare=EACH, dry_run=not is_known)
    if not found.sessions:
        return
    many = counted(len(found.sessions), "session")
    if is_known:
        days = sorted(line.last_recorded[:10] for line in found.sessions)
        said = f"{many} deleted on {now:%Y-%m-%d} by the limit that you set, last recorded {days[0]} to {days[-1]}."
        state = state.model_copy(update={"said": said})
    else:
        begin = now + NOTICE
        said = (
            f"{many} of {len(found.sessions) + found.kept} will be deleted from {begin:%Y-%m-%d} on, by the limit that"
            " you set: contextstash retain lists them. Change keep_days, or pin a session (contextstash pin), to keep"
            " them."
        )
        state = _State(days=settings.keep_days, begin=begin, said=said)
    logger.warning("retention: %s", said)
    _write(file, state.model_copy(update={"looked": now}))


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
