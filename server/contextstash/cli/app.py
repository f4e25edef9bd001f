"""The command group. A command is imported when it is used; one that fails prints one line and returns an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain

import click

from contextstash import __version__
from contextstash.base.process import configure_warnings
from contextstash.cli.console import echo, in_commands
from contextstash_storage.errors import ContextstashError

INTERRUPTED = 130
"""The exit code of shells for a process that SIGINT ended: 128 + 2."""


SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("setup_commands", "See the main job step by step, on a sample session."),
        "install": ("client_commands", "Add contextstash to a client's configuration."),
        "import": ("file_commands", "Record the sessions that clients have written to disk."),
        "run": ("client_commands", "Start a client behind a proxy that shortens its requests."),
        "continue": ("client_commands", "Go on with a session in another client."),
        "doctor": ("setup_commands", "Check database, settings, clients and hooks."),
        "uninstall": ("client_commands", "Remove contextstash from a client's configuration."),
    },
    "Look": {
        "sessions": ("session_commands", "List the sessions, newest first."),
        "status": ("session_commands", "Show how full a session's context is, and with what."),
        "search": ("session_commands", "Search everything that was recorded."),
        "show": ("session_commands", "Print an output, a summary, or messages."),
        "receipt": ("session_commands", "Say what was billed, and what contextstash saved or cost."),
        "advise": ("session_commands", "Compare what smaller windows would have cost."),
        "ui": ("server_commands", "Show sessions in a browser."),
    },
    "Change": {
        "prune": ("change_commands", "Archive a session's old tool outputs."),
        "compact": ("change_commands", "Show a session's older messages as a summary."),
        "restore": ("change_commands", "Undo a prune or a compaction."),
        "pin": ("change_commands", "Keep outputs in the view, whatever their age."),
        "delete": ("change_commands", "Delete a session for good."),
        "retain": ("change_commands", "Delete sessions older than you want to keep."),
        "encrypt": ("file_commands", "Encrypt the database file."),
        "decrypt": ("file_commands", "Make the database file readable without a key again."),
        "config": ("setup_commands", "Show and change settings."),
    },
    "Share and check": {
        "export": ("file_commands", "Print a session as JSON lines: whole, or its messages."),
        "migrate-store": ("file_commands", "Copy all sessions into another database."),
    },
    "For clients and scripts": {
        "serve": ("server_commands", "Serve the tools over MCP; clients start this."),
        "token": ("server_commands", "Make, list and revoke tokens for a server over HTTP."),
        "gateway": ("server_commands", "Serve other MCP servers' tools, with limited outputs."),
        "proxy": ("server_commands", "Stand between a client and the model API."),
        "hook": ("client_commands", "Handle an event of a client's hooks."),
        "window": ("client_commands", "Answer a compaction of a client, for its plugin."),
    },
}
"""The module of each command, and what it does, by section."""


class Commands(Mapping[str, click.Command]):
    """The commands of SECTIONS; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        module, _ = next((lines[name] for lines in SECTIONS.values() if name in lines), (None, ""))
        if module is None:
            raise KeyError(name)
        found = vars(import_module(f"contextstash.cli.{module}")).values()
        return next(each for each in found if isinstance(each, click.Command) and each.name == name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(SECTIONS.values())

    def __len__(self) -> int:
        return sum(map(len, SECTIONS.values()))


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section, without importing them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, lines in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in lines.items()])


@click.group(
    cls=SectionedGroup,
    commands=Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="New here? `contextstash demo` shows everything in a few seconds, with no set-up.",
)
@click.version_option(__version__, message="contextstash %(version)s")
def cli() -> None:
    """Manages an agent's context window: what leaves the model's window never leaves the session."""


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
        command = error.ctx.command_path if error.ctx else "contextstash"
        shows = "contextstash config show, or " if command == "contextstash config" else ""
        return _fail(f"{message}{stop} See: {shows}{command} --help", error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except ContextstashError as error:
        return _fail(in_commands(str(error)))
    except BrokenPipeError:  # the reader closed the pipe: the flush at exit must not raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error}. Check the path and its permissions.")
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _fail(text: str, code: int = 1) -> int:
    echo(f"Error: {' '.join(text.split())}", err=True)
    return code
