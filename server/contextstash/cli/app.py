"""The command group. A command that fails prints one line and returns an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from contextstash import __version__
from contextstash.base.plain_logs import configure_warnings
from contextstash.cli.command_words import in_commands
from contextstash.cli.output import echo
from contextstash.cli.sections import Commands, SectionedGroup
from contextstash_storage.errors import ContextstashError

INTERRUPTED = 130
"""The exit code of shells for a process that SIGINT ended: 128 + 2."""


def _print_version(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        from contextstash.clients.installation import this_installation

        click.echo(f"contextstash {__version__}\nfrom {this_installation().described}")
        context.exit()


@click.group(
    cls=SectionedGroup,
    commands=Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="New here? `contextstash demo --sample` shows everything in a few seconds, with no set-up.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and where it is from.",
)
@click.option("--db", metavar="DATABASE", help="The database, for any command: a file, or postgresql://…")
@click.option("--preset", metavar="NAME", help="The named set of settings to start from, for any command.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="One setting, for any command; repeatable.")
@click.pass_context
def cli(context: click.Context, /, **before: Any) -> None:
    """Manages an agent's context window: what leaves the model's window never leaves the session."""
    given = {name: value for name, value in before.items() if value and name != "db"}
    name = context.invoked_subcommand or ""
    if given and name in cli.commands:
        command = cli.commands[name]
        inner = command.commands if isinstance(command, click.Group) else ()
        context.default_map = {name: {**given, **dict.fromkeys(inner, given)}}


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process: 0 success, 1 failure, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    configure_warnings()
    try:
        result = cli.main(args=arguments, prog_name="contextstash", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        message = error.format_message().rstrip()
        stop = "" if message.endswith((".", "?", "!")) else "."
        return _fail(f"{message}{stop} See: {_help_command(error)}", error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except ContextstashError as error:
        return _fail(in_commands(str(error)))
    except BrokenPipeError:
        return _end_of_pipe()
    except OSError as error:
        return _fail(f"{error}. Check the path and its permissions.")
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _help_command(error: click.UsageError) -> str:
    return f"{error.ctx.command_path if error.ctx else 'contextstash'} --help"


def _fail(text: str, code: int = 1) -> int:
    echo(f"Error: {' '.join(text.split())}", err=True)
    return code


def _end_of_pipe() -> int:
    """The reader closed the pipe: redirect standard output, so that the flush at exit raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
