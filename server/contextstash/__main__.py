"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> None:
    """Run the command line and end the process with its exit code. A hook runs after every tool call of a client, and a
    client waits for its plugin, so they are handled before the command line is imported."""
    gc.set_threshold(GC_THRESHOLD)
    match sys.argv[1:]:
        case ["hook", client, *options] if not client.startswith("-"):
            from contextstash.clients.hooks import run_hook

            _end(run_hook(client, options))
        case ["window", client, *options] if not client.startswith("-"):
            from contextstash.clients.hooks import run_window

            _end(run_window(client, options))
    from contextstash.cli.app import run

    raise SystemExit(run())


GC_THRESHOLD = 50_000
"""New objects after which a process looks for garbage, in place of 700: all that it imports would be looked through
again and again, which takes a twentieth of the time of a hook, or of a server's start."""


def _end(code: int) -> NoReturn:
    """End the process at once: everything is closed, and to take all imported modules apart takes a seventh of the time
    for which the client waits."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the client has closed it, perhaps before the start
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
