"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> None:
    """Run the command line and end the process with its exit code. A hook runs after every tool
    call of a client, so it is handled before the command line is imported."""
    gc.set_threshold(GC_THRESHOLD)
    match sys.argv[1:]:
        case ["hook", client, *options]:
            from contextstash.clients.hooks import HOOKED, part_of

            given = dict(zip(options[::2], options[1::2], strict=False))
            part = part_of(given.get("--part", "1/1"))
            # Anything else, such as --help or a mistake, is for the command line.
            if client in HOOKED and part and len(options) == 2 * len(given) and given.keys() <= {"--db", "--part"}:
                _run_and_end(client, given.get("--db"), part)
        case ["window", ("claude-code" | "opencode" | "pi") as client]:
            _answer_and_end(client)
    from contextstash.cli.app import run

    raise SystemExit(run())


GC_THRESHOLD = 50_000
"""New objects after which a process looks for garbage, in place of 700: all that it imports would be looked through
again and again, which takes a twentieth of the time of a hook, or of a server's start."""


def _run_and_end(client: str, database: str | None, part: tuple[int, int]) -> NoReturn:
    """Handle a hook's event, and end the process at once: everything is closed then, and to take all imported modules
    apart takes a seventh of the time for which the client waits."""
    from contextstash.clients.hooks import run_hook

    _end(run_hook(client, database, part))


def _answer_and_end(client: str) -> NoReturn:
    """Handle a request of a client's plugin, as fast as a hook."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from contextstash.clients.client_window import run

    _end(run(client))


def _end(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the client has closed it, perhaps before the start
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
