"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn

from contextstash.hosts.hooks.clients import HOOKED, run_hook


def main() -> None:
    """Run the command line and end the process with its exit code. A hook runs after every tool
    call of a client, so it is handled before the command line is imported."""
    match sys.argv[1:]:
        case ["hook", client] if client in HOOKED:
            _run_and_end(client)
        case ["hook", client, "--db", database] if client in HOOKED:
            _run_and_end(client, database)
        case ["statusline"]:
            _print_status_and_end()
        case ["statusline", "--db", database]:
            _print_status_and_end(database)
    from contextstash.cli.app import run

    raise SystemExit(run())


HOOK_GC_THRESHOLD = 50_000
"""New objects after which a hook's process looks for garbage, in place of 700: all that it imports would be looked
through again and again, which takes a twentieth of its time. A guess."""


def _run_and_end(client: str, database: str | None = None) -> NoReturn:
    """Handle a hook's event, and end the process at once: everything is closed then, and to take all imported modules
    apart takes a seventh of the time for which the client waits."""
    gc.set_threshold(HOOK_GC_THRESHOLD)
    _end(run_hook(client, database))


def _print_status_and_end(database: str | None = None) -> NoReturn:
    from contextstash.hosts.status_line import run

    _end(run(database))


def _end(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the client has closed it
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
