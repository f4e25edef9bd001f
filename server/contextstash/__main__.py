"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn

from contextstash.clients.hooks import HOOKED, part_of, run_hook


def main() -> None:
    """Run the command line and end the process with its exit code. A hook runs after every tool
    call of a client, so it is handled before the command line is imported."""
    match sys.argv[1:]:
        case ["hook", client, *options] if client in HOOKED:
            given = dict(zip(options[::2], options[1::2], strict=False))
            # Anything else, such as --help or a mistake, is for the command line.
            if len(options) == 2 * len(given) and given.keys() <= {"--db", "--part"}:
                part = part_of(given.get("--part", "1/1"))
                if part is not None:
                    _run_and_end(client, given.get("--db"), part)
        case ["window", client] if not client.startswith("-"):
            _answer_and_end(client)
    from contextstash.cli.app import run

    raise SystemExit(run())


HOOK_GC_THRESHOLD = 50_000
"""New objects after which a hook's process looks for garbage, in place of 700: all that it imports would be looked
through again and again, which takes a twentieth of its time."""


def _run_and_end(client: str, database: str | None, part: tuple[int, int]) -> NoReturn:
    """Handle a hook's event, and end the process at once: everything is closed then, and to take all imported modules
    apart takes a seventh of the time for which the client waits."""
    gc.set_threshold(HOOK_GC_THRESHOLD)
    _end(run_hook(client, database, part))


def _answer_and_end(client: str) -> NoReturn:
    """Handle a request of a client's plugin, as fast as a hook."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.set_threshold(HOOK_GC_THRESHOLD)
    from contextstash.clients.client_window import run

    _end(run(client))


def _end(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the client has closed it, perhaps before the start
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
