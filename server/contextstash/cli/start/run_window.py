"""The size at which a client compacts in one run: set before it starts, and judged when it has ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import StashOpener
from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.hosts.compaction_points import CompactionSetting
    from contextstash.hosts.launch import Launch
    from contextstash.service.stash import Stash
    from contextstash_storage.databases import Location

MAX_EVENTS = 500
"""Events of a session in which compactions are looked for. A guess: more than a session of one run has."""

MAX_SESSIONS = 100
"""Sessions of one run that are looked through. A guess: more than one client uses at a time."""


@dataclass(frozen=True)
class ChosenWindow:
    """The client's setting, and the size that the user wants, in tokens."""

    setting: CompactionSetting
    wanted: int

    @property
    def tokens(self) -> int:
        """The size that is set."""
        return self.setting.nearest(self.wanted)


def chosen_window(program: str, wanted: int | None) -> ChosenWindow | None:
    """The window of a client; None if the user wants none. Raises BadInputError if the client has no such setting."""
    if wanted is None:
        return None
    from contextstash.hosts.compaction_points import compaction_setting

    return ChosenWindow(compaction_setting(Path(program).name), wanted)


def with_window(chosen: ChosenWindow | None, launch: Launch, db: Location | None) -> Launch:
    """The client's process with the size at which it compacts, and with the hooks that then give a hand-off."""
    if chosen is None:
        return launch
    from contextstash.hosts.clients import Machine
    from contextstash.hosts.compaction_points import remark_on
    from contextstash.hosts.run_hooks import with_hand_offs

    setting = chosen.setting
    if remark := remark_on(setting, chosen.wanted):
        click.echo(f"contextstash: {remark}", err=True)
    launch = setting.for_run(launch, setting.value(chosen.tokens))
    hooked = with_hand_offs(setting.client, launch, Machine.this(), db)
    if hooked is None:
        command = f"contextstash install {setting.client} --hooks"
        click.echo(f"contextstash: no hooks, so no hand-off after a compaction. Run: {command}", err=True)
    return hooked or launch


def report_refills(chosen: ChosenWindow | None, opener: StashOpener, started: float) -> None:
    """Print that the window is too small, if a session of this run was compacted again and again within a few turns."""
    if chosen is None:
        return
    from contextstash.context.window.rapid_refill import compactions_of, rapid_compactions, refill_advice

    async def rapid(stash: Stash) -> list[int]:
        names = [name for name, _ in await stash.proxied.recent(started, MAX_SESSIONS)]
        found = [await stash.read_events(name, limit=MAX_EVENTS) for name in names]
        return [rapid_compactions(compactions_of(events)) for events in found]

    with suppress(ContextstashError):  # the report before this has said what is wrong
        if advice := refill_advice(max(opener.run(rapid), default=0), chosen.tokens):
            click.echo(f"contextstash: {advice}", err=True)
