"""What commands share: their options, the session that they name, and how a function becomes a command."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click
from click.core import ParameterSource

from contextstash.cli.console import echo_json, tell
from contextstash.clients.client import project_folder
from contextstash.configuration.setting_layers import Configuration, RemarkHandler, configuration
from contextstash.stash_opener import StashOpener
from contextstash_storage.databases import location_of
from contextstash_storage.errors import BadInputError, SessionNotFoundError

if TYPE_CHECKING:
    from contextstash.operations import Operation
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location

Command = TypeVar("Command", bound=Callable[..., Any])

RECORDING = frozenset({"create", "demo", "gateway", "hook", "import", "install", "proxy", "run", "serve"})
"""The commands that may name a database which does not exist: they, or what they install, record into it, and `token
create` comes before the first server."""


def database(value: str) -> Location:
    """A file, or the address of a PostgreSQL database."""
    location = location_of(value)
    if isinstance(location, Path) and location.is_dir():
        raise click.BadParameter(f"File '{location}' is a directory.")
    return location


class Number(click.IntRange):
    """A whole number in a range, called so in errors."""

    name = "whole number"


def address(value: str) -> tuple[str, int]:
    """The host and the port of HOST:PORT."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise BadInputError(f"'{value}' is not HOST:PORT. Example: 127.0.0.1:8787")
    return host.strip("[]") or "127.0.0.1", int(port)


def tokens(value: str) -> int:
    """The tokens of a window, such as 100000 or 100k."""
    found = re.fullmatch(r"(\d{1,9})(k?)", value.strip().lower().replace("_", ""))
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(f"'{value}' is not a number of tokens. Example: 100k")
    return int(found[1]) * (1_000 if found[2] else 1)


def day(value: str) -> date:
    """A day in UTC; for a number of days, such as 7d, the first of these up to today."""
    if (found := re.fullmatch(r"(\d{1,4})d", value.strip())) is not None:
        return datetime.now(UTC).date() - timedelta(days=int(found[1]))
    try:
        return datetime.fromisoformat(value.strip()).date()
    except ValueError:
        text = f"'{value}' is neither a number of days nor a date. Examples: 7d, 2026-05-31, 2026-05-31T14:00"
        raise click.BadParameter(text) from None


def _named_database(context: click.Context, _: click.Parameter, named: Location | None) -> Location | None:
    """The --db of the command. Raises BadInputError if it is misspelt: it would make an empty database and show that
    nothing is recorded."""
    is_typed = context.get_parameter_source("db") is ParameterSource.COMMANDLINE
    if is_typed and isinstance(named, Path) and context.command.name not in RECORDING and not named.exists():
        raise BadInputError(f"There is no database {named}. contextstash import --db {named} PATH makes one if it can.")
    return named


DATABASE = click.option(
    "--db",
    type=database,
    metavar="DATABASE",
    callback=_named_database,
    envvar="CONTEXTSTASH_DB",
    help="The database: a file, or postgresql://… [default: a file in the user's data folder]",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
PRESET = click.option("--preset", metavar="NAME", help="The named set of settings to start from.")
SET = click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE", help="One setting; may be given several times."
)


SESSION = click.argument("session", required=False)
"""The beginning of a session's id. Commands whose arguments are something else take it as --session."""


def settings_from(preset: str | None, given: tuple[str, ...], on_remark: RemarkHandler | None = None) -> Configuration:
    """The settings of files, environment and options together. `on_remark` gets a line about each of a project's
    files that is not used; by default it is printed to standard error."""
    return configuration(
        project=project_folder(),
        environment=os.environ,
        preset=preset,
        given=given,
        on_remark=on_remark or (lambda remark: click.echo(f"contextstash: {remark}", err=True)),
    )


def opener_options(command: Command) -> Command:
    """Add --db, --preset and --set to a command, which gets `opener`."""

    @functools.wraps(command)
    def opened(db: Location | None, preset: str | None, given: tuple[str, ...], **arguments: Any) -> Any:
        return command(opener=StashOpener(db, settings_from(preset, given)), **arguments)

    return DATABASE(PRESET(SET(opened)))  # type: ignore[return-value]


Work = Callable[..., Awaitable[Any]]
"""What a command does: with the open stash and its arguments. It returns a result, or a result and the function that
prints it for a person."""


def stash_command(name: str, *, epilog: str | None = None) -> Callable[[Work], click.Command]:
    """Makes a command of what it does with an open stash. The result is printed as JSON with --json, else in words."""

    def declare(work: Work) -> click.Command:
        @functools.wraps(work)
        def run(opener: StashOpener, as_json: bool, **arguments: Any) -> None:
            done = opener.run(lambda stash: work(stash, **arguments))
            result, show = done if isinstance(done, tuple) else (done, lambda: tell(done))
            if as_json:
                echo_json(result)
            else:
                show()

        return click.command(name, epilog=epilog)(opener_options(JSON(run)))

    return declare


def options_of(operation: Operation, **changed: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Adds the argument SESSION, and an option for each other argument of an operation, in its words. `changed` are
    Click's keywords for some of them."""

    def add(work: Command) -> Command:
        for argument in reversed(list(operation.arguments.values())):
            if argument.name != "session_id":
                keywords = {"help": f"{argument.text}.", **changed.get(argument.name, {})}
                if argument.type == int | None:
                    keywords |= {"type": Number(0), "metavar": "N"}
                elif argument.type is bool:
                    keywords |= {"is_flag": True}
                elif get_origin(argument.type) is Literal:
                    choices = click.Choice(get_args(argument.type))
                    keywords |= {"type": choices, "default": argument.default, "show_default": True}
                click.option(f"--{argument.name.replace('_', '-')}", **keywords)(work)
        return SESSION(work)

    return add


async def find_session(stash: Stash, prefix: str | None) -> str:
    """The session whose id begins with `prefix`; by default the one with the newest message.

    Raises BadInputError if several ids begin with it, or if it is empty, as a variable that is not set; and
    SessionNotFoundError if none does.
    """
    if prefix == "":
        raise BadInputError("The session's id is empty. Pass the beginning of one: contextstash sessions lists them.")
    if prefix is None:
        newest = (await stash.list_sessions(limit=1)).sessions
        if not newest:
            raise SessionNotFoundError("There are no sessions yet. Record those of your clients: contextstash import")
        return newest[0].session_id
    from contextstash.queries.sessions import named_by

    found = await stash.complete_session_id(prefix)
    if not found:
        raise SessionNotFoundError(f"There is no session '{prefix}'. contextstash sessions lists them.")
    named = prefix if prefix in found else named_by(found)
    if named is None:
        raise BadInputError(f"Several sessions begin with '{prefix}': {', '.join(found[:5])}. Pass more of the id.")
    return named
