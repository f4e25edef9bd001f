"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit code. A hook runs after every tool call of a client: it is
    answered without the rest."""
    if sys.argv[1:] == ["hook", "claude-code"]:
        from contextstash.hosts.hooks.claude_code import run as run_hook

        raise SystemExit(run_hook())
    from contextstash.cli.app import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
