"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations

import sys

from contextstash.hosts.hooks.clients import HOOKED, run_hook


def main() -> None:
    """Run the command line and end the process with its exit code. A hook runs after every tool
    call of a client, so it is handled before the command line is imported."""
    match sys.argv[1:]:
        case ["hook", client] if client in HOOKED:
            raise SystemExit(run_hook(client))
        case ["hook", client, "--db", database] if client in HOOKED:
            raise SystemExit(run_hook(client, database))
    from contextstash.cli.app import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
