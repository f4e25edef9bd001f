"""The options that commands share, the stash that they open, and the session that they name."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click
from click.core import ParameterSource

from contextstash.clients.projects import project_folder
from contextstash.configuration.setting_layers import Configuration, RemarkHandler, configuration
from contextstash.session_names import named_by
from contextstash_storage.databases import location_of
from contextstash_storage.errors import BadInputError, SessionNotFoundError

if TYPE_CHECKING:
    from contextstash.mcp.serve import ServeOptions
    from contextstash.operations import Operation
    from contextstash.stash import Stash
    from contextstash_storage.databases import Location

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

RECORDING = frozenset({"create", "demo", "gateway", "hook", "import", "install", "proxy", "run", "serve"})
"""The commands that may name a database which does not exist: they, or what they install, record into it, and `token
create` comes before the first server."""


class DatabaseType(click.ParamType[Any]):
    """A file, or the address of a PostgreSQL database."""

    name = "database"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        location = location_of(value) if isinstance(value, str) else value
        if isinstance(location, Path) and location.is_dir():
            self.fail(f"File '{location}' is a directory.", param, ctx)
        return location


class AddressType(click.ParamType[Any]):
    """HOST:PORT, as a host and a port."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65_535:
            option = param.opts[0] if param else "It"
            raise BadInputError(f"{option} takes HOST:PORT, not '{value}'. Example: {option} 127.0.0.1:8787")
        return host.strip("[]") or "127.0.0.1", int(port)


MIN_WINDOW = 5_000
"""Tokens: less than the system prompt and the tools of any client, which begin each window."""


def tokens(value: str) -> int:
    """The tokens of a window, such as 100000 or 100k."""
    found = re.fullmatch(r"(\d{1,9})(k?)", value.strip().lower().replace("_", ""))
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(f"'{value}' is not a number of tokens. Example: 100k")
    number = int(found[1]) * (1_000 if found[2] else 1)
    if number < MIN_WINDOW:
        raise click.BadParameter(f"{number:,} tokens are fewer than any client's own prompt. Example: 100k")
    return number


def _named_database(context: click.Context, _: click.Parameter, database: Location | None) -> Location | None:
    """The --db of the command, or the one before it. Raises BadInputError if it is misspelt: it would make an empty
    database and show that nothing is recorded."""
    named = context.get_parameter_source("db") is ParameterSource.COMMANDLINE
    root = context.find_root()
    if not named and root is not context and root.params.get("db"):
        # Click would prefer the environment to an option that stands before the command.
        database, named = location_of(str(root.params["db"])), True
    if named and isinstance(database, Path) and context.command.name not in RECORDING and not database.exists():
        create = f"contextstash import --db {database} PATH creates it."
        advice = create if _can_be_created(database) else "None can be created there: name another with --db."
        raise BadInputError(f"There is no database {database}. {advice}")
    return database


def _can_be_created(database: Path) -> bool:
    """Whether a file can be made in the nearest folder above that exists: only trying says so for /proc."""
    folder = next((parent for parent in database.absolute().parents if parent.is_dir()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


DATABASE = click.option(
    "--db",
    type=DatabaseType(),
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


@dataclass(frozen=True)
class StashOpener:
    """Opens the database that a command works on, with its settings."""

    database: Location | None
    settings: Configuration

    @property
    def file(self) -> Path | None:
        """The file of the database; None if it is on a server."""
        from contextstash.configuration.locations import default_database

        location = self.database or default_database()
        return location if isinstance(location, Path) else None

    @asynccontextmanager
    async def stash(self) -> AsyncIterator[Stash]:
        """The open stash. Closes it at the end."""
        from contextstash.configuration.api_key import api_key_from
        from contextstash.mcp.serve import opener

        async with await opener(self._options(api_key=api_key_from(os.environ)))() as stash:
            yield stash

    def serving(self, **more: Any) -> ServeOptions:
        """The options of a server or proxy that works on this database."""
        from contextstash.automatic_retention import automatic_retention

        return self._options(on_open=automatic_retention(self.file, self.settings.of_user()), **more)

    def _options(self, **more: Any) -> ServeOptions:
        from contextstash.mcp.serve import ServeOptions

        return ServeOptions(
            db=self.database, settings=self.settings.settings_layer, consent=self.settings.may_call_model, **more
        )

    def run(self, work: Callable[[Stash], Awaitable[T]]) -> T:
        """Run `work` with an open stash and return its result."""

        async def with_stash() -> T:
            async with self.stash() as stash:
                return await work(stash)

        return asyncio.run(with_stash())


def settings_from(preset: str | None, given: tuple[str, ...], on_remark: RemarkHandler | None = None) -> Configuration:
    """The settings of files, environment and options together. `on_remark` gets a line about each of a project's
    files that is not used; by default it is printed to standard error."""
    return configuration(
        project=project_folder(os.environ),
        environment=os.environ,
        preset=preset,
        given=given,
        on_remark=on_remark or _warn,
    )


def _warn(remark: str) -> None:
    click.echo(f"contextstash: {remark}", err=True)


def opener_options(command: Command) -> Command:
    """Add --db, --preset and --set to a command, which gets `opener`."""

    @functools.wraps(command)
    def opened(db: Location | None, preset: str | None, given: tuple[str, ...], **arguments: Any) -> Any:
        return command(opener=StashOpener(db, settings_from(preset, given)), **arguments)

    return DATABASE(PRESET(SET(opened)))  # type: ignore[return-value]


def database_options(command: Command) -> Command:
    """Add the same and --json to a command, which gets `opener` and `as_json`."""
    return opener_options(JSON(command))


def options_of(operation: Operation, *names: str) -> Callable[[Command], Command]:
    """Add an option for each of these arguments of an operation, in its words."""

    def add(command: Command) -> Command:
        for name in reversed(names):
            declared = operation.arguments[name]
            text = f"{declared.text}."
            command = click.option(
                f"--{name.replace('_', '-')}", help=text, **_option(declared.type, declared.default)
            )(command)
        return command

    return add


def _option(kind: Any, default: Any) -> dict[str, Any]:
    """What Click needs to know of an option with this type."""
    if isinstance(kind, UnionType):
        kind = get_args(kind)[0]
    if kind is bool:
        return {"is_flag": True}
    if kind is int:
        return {"type": click.IntRange(0), "metavar": "N"}
    if get_origin(kind) is Literal:
        return {"type": click.Choice(get_args(kind)), "default": default, "show_default": True}
    return {}


SESSION = click.argument("session", required=False)
"""A session, by the beginning of its id; by default the one with the newest message."""


class NoProgramError(click.ClickException):
    """The program to start is not installed."""

    exit_code = 127
    """That of shells for a command that does not exist."""


def program_on_path(name: str) -> str:
    """The path of a program. Raises NoProgramError."""
    if (found := shutil.which(name)) is None:
        raise NoProgramError(f"There is no program '{name}' on the PATH.")
    return found


async def find_session(stash: Stash, prefix: str | None) -> str:
    """The session whose id begins with `prefix`; by default the one with the newest message.

    Raises BadInputError if several ids begin with it, SessionNotFoundError if none does.
    """
    if prefix is None:
        newest = (await stash.list_sessions(limit=1)).sessions
        if not newest:
            raise SessionNotFoundError("There are no sessions yet. Record one: contextstash import PATH")
        return newest[0].session_id
    found = await stash.complete_session_id(prefix)
    if prefix in found:
        return prefix
    if (named := named_by(found)) is not None:
        return named
    if not found:
        raise SessionNotFoundError(f"There is no session '{prefix}'. contextstash sessions lists them.")
    raise BadInputError(f"Several sessions begin with '{prefix}': {', '.join(found[:5])}. Pass more of the id.")
