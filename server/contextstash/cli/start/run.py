"""`contextstash run`: starts a client behind a proxy of its own."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from contextstash.cli.options import (
    DATABASE,
    PRESET,
    SET,
    StashOpener,
    program_on_path,
    settings_from,
    tokens,
)
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contextstash.clients.client import Client, Launch, WindowSetting
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location
    from contextstash_storage.records import ProxiedSession

MAX_EVENTS = 500
"""Events of a session in which compactions are looked for; those before them are not counted."""

MAX_SESSIONS = 100
"""Sessions that the lines at the end sum up; further ones are left out of their sums."""


@dataclass(frozen=True)
class ChosenWindow:
    """The client's setting, and the size that the user wants, in tokens."""

    client: Client
    setting: WindowSetting
    wanted: int

    @property
    def tokens(self) -> int:
        """The size that is set."""
        return self.setting.nearest(self.wanted)


def chosen_window(program: str, wanted: int | None) -> ChosenWindow | None:
    """The window of a client; None if the user wants none. Raises BadInputError if the client has no such setting."""
    if wanted is None:
        return None
    from contextstash.clients.client import Client, clients
    from contextstash.clients.install import window_setting

    name = Path(program).name
    found = next((each for each in clients() if name in (each.name, *each.programs)), Client(name))
    return ChosenWindow(found, window_setting(found), wanted)


def with_window(chosen: ChosenWindow | None, launch: Launch, db: Location | None) -> Launch:
    """The client's process with the size at which it compacts, and with the hooks that then give a hand-off."""
    if chosen is None:
        return launch
    from contextstash.clients.client import Machine
    from contextstash.clients.launch import with_hand_offs

    setting = chosen.setting
    if remark := setting.remark_on(chosen.wanted):
        click.echo(f"contextstash: {remark}", err=True)
    launch = setting.for_run(launch, setting.value(chosen.tokens))
    hooked = with_hand_offs(chosen.client, launch, Machine.this(), db)
    if hooked is None:
        command = f"contextstash install {chosen.client.name} --hooks"
        click.echo(f"contextstash: no hooks, so no hand-off after a compaction. Run: {command}", err=True)
    return hooked or launch


def report_refills(chosen: ChosenWindow | None, opener: StashOpener, started: float) -> None:
    """Print that the window is too small, if a session of this run was compacted again and again within a few turns."""
    if chosen is None:
        return
    from contextstash.window.refills import compactions_of, rapid_compactions, refill_advice

    async def rapid(stash: Stash) -> list[int]:
        names = [name for name, _ in await stash.proxied.recent(started, MAX_SESSIONS)]
        found = [await stash.read_events(name, limit=MAX_EVENTS) for name in names]
        return [rapid_compactions(compactions_of(events)) for events in found]

    with suppress(ContextstashError):  # the report before this has said what is wrong
        if advice := refill_advice(max(opener.run(rapid), default=0), chosen.tokens):
            click.echo(f"contextstash: {advice}", err=True)


class OwnOptionsAnywhere(click.Command):
    """A command that starts another program. Its own long options count before and after the program's name, up to
    `--`; everything else behind the name is for the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        takes_value = {
            name: not param.is_flag
            for param in self.params
            if isinstance(param, click.Option)
            for name in param.opts
            if name.startswith("--")
        }
        end = args.index("--") if "--" in args else len(args)
        own: list[str] = []
        others: list[str] = []
        before = iter(args[:end])
        for each in before:
            name, equals, _ = each.partition("=")
            (own if name in takes_value else others).append(each)
            if takes_value.get(name) and not equals:
                if (value := next(before, None)) is None:
                    raise click.BadOptionUsage(name, f"Option '{name}' requires an argument.", ctx)
                own.append(value)
        return super().parse_args(ctx, [*own, *others, *args[end:]])


@click.command(
    "run", cls=OwnOptionsAnywhere, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--upstream", metavar="URL", help="The model API. [default: the one that the client would use]")
@click.option("--no-prune", is_flag=True, help="Record the requests, but change none.")
@click.option("--keep-tokens", type=click.IntRange(min=0), help="How many tokens of the newest tool results stay.")
@click.option("--window", type=tokens, metavar="TOKENS", help="Where the client compacts, such as 100k.")
@click.option("--quiet", is_flag=True, help="Print nothing before and after the client.")
@click.option("--yes", is_flag=True, help="Start at once: neither ask about nor install contextstash in the client.")
@DATABASE
@PRESET
@SET
@click.argument("client")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    upstream: str | None,
    no_prune: bool,
    keep_tokens: int | None,
    window: int | None,
    quiet: bool,
    yes: bool,
    db: Location | None,
    preset: str | None,
    given: tuple[str, ...],
    client: str,
    arguments: tuple[str, ...],
) -> int:
    """Start CLIENT (claude, codex or another program) with its requests through a proxy of its own.

    Old tool outputs leave the requests when the provider's cache has expired. Example: contextstash run claude --window
    100k. These options may stand before or after CLIENT; all others, and everything behind --, go to CLIENT."""
    if sys.platform == "win32":
        raise BadInputError("contextstash run needs a Unix system. Start contextstash proxy, and set the base URL.")
    from contextstash.clients.launch import launched_client
    from contextstash.proxy.app import check_upstream
    from contextstash.proxy.supervisor import Supervisor, proxy_command, run_client

    program = program_on_path(client)
    arguments = arguments[arguments[:1] == ("--",) :]
    chosen = chosen_window(program, window)
    launched = launched_client(client, upstream)
    proxied = launched.proxied
    assert proxied is not None
    address = check_upstream(upstream or proxied.upstream(os.environ))
    configured = _check_configured(launched, arguments, quiet=quiet, yes=yes)
    switches = {"--configured": configured, "--no-prune": no_prune}
    sizes = {"--keep-tokens": keep_tokens, "--window": None if chosen is None else chosen.tokens}
    options = [*_database(db), *_flags(switches, {**sizes, "--preset": preset, "--project": Path.cwd()}, given)]
    reported = None if quiet else StashOpener(db, settings_from(preset, given))
    before = _states_before(reported) if reported else {}
    started = time.time()
    with _log_file(db) as log:
        supervisor = Supervisor(lambda descriptor: proxy_command(descriptor, options), address, log.fileno())
        supervisor.start()
        try:
            launch = proxied.launch(supervisor.url, (program, *arguments), os.environ, address)
            launch = with_window(chosen, launch, db)
            code = run_client(launch.command, {**os.environ, **launch.environment})
        finally:
            supervisor.stop()
    if reported:
        _report(reported, started, before, chosen)
    return code


def _database(db: Location | None) -> list[str]:
    if db is None or isinstance(db, Path):
        return [] if db is None else ["--db", str(db)]
    os.environ["CONTEXTSTASH_DB"] = db.given  # it may hold a password, and all users see a program's arguments
    return []


def _flags(switches: Mapping[str, bool], values: Mapping[str, object], sets: Sequence[str] = ()) -> list[str]:
    """The options of the proxy's command line."""
    given = {name: str(value) for name, value in values.items() if value is not None}
    pairs = [*given.items(), *(("--set", each) for each in sets)]
    return [*(name for name, is_on in switches.items() if is_on), *chain.from_iterable(pairs)]


def _log_file(db: Location | None) -> BinaryIO:
    """The file for the proxy's log, in the folder of the database: the terminal belongs to the client. Raises
    BadInputError."""
    from contextstash.base.regular_files import open_log
    from contextstash.configuration.locations import data_folder

    folder = data_folder(db)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "proxy.log"
    try:
        return os.fdopen(open_log(path), "ab")
    except OSError as error:
        raise BadInputError(f"The log {path} cannot be written: {error.strerror}. Move it away.") from error


def _check_configured(launched: Client, arguments: tuple[str, ...], *, quiet: bool, yes: bool) -> bool:
    """Whether the client has our server; if not, offer to install it: without the retrieval tool nothing is pruned."""
    from contextstash.clients.client import Machine
    from contextstash.clients.launch import is_configured

    if is_configured(launched, arguments, Machine.this()):
        return True
    command = f"contextstash install {launched.name}"
    if yes or quiet or not (sys.stdin.isatty() and sys.stderr.isatty()):
        click.echo(f"contextstash: not installed in this client, so nothing is pruned. Run first: {command}", err=True)
        return False
    click.echo("Without contextstash's server the client cannot retrieve outputs, so nothing is pruned.", err=True)
    if not click.confirm(f"Run {command} now?", err=True):
        return False
    from contextstash.cli.start.install import install

    with click.get_current_context().scope():
        install.main(args=[launched.name], standalone_mode=False)
    return is_configured(launched, arguments, Machine.this())


def _report(
    opener: StashOpener, started: float, before: Mapping[str, ProxiedSession], chosen: ChosenWindow | None
) -> None:
    """Print what the proxy sent and saved since then; `before` are the states of the sessions at that time."""
    from contextstash.queries.proxy_report import lines_since

    try:
        lines = lines_since(_states(opener, started), before)
    except ContextstashError as error:
        lines = [f"No report: {error}"]
    report_refills(chosen, opener, started)
    for line in lines:
        click.echo(f"contextstash: {line}", err=True)


def _states_before(opener: StashOpener) -> dict[str, ProxiedSession]:
    """The states of all sessions, for a report on what comes after them."""
    if opener.file is None or opener.file.exists():
        with suppress(ContextstashError):  # the client starts all the same; the line at the end says what is wrong
            return _states(opener, 0.0)
    return {}


def _states(opener: StashOpener, since: float) -> dict[str, ProxiedSession]:
    """The states of the sessions whose requests went through a proxy since a time."""

    async def read(stash: Stash) -> dict[str, ProxiedSession]:
        return dict(await stash.proxied.recent(since, MAX_SESSIONS))

    return opener.run(read)
