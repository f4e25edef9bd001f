"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations

import sys

HOOKED = {"claude-code": "claude_code", "codex": "codex", "gemini": "gemini"}
"""The modules that know a client's hooks."""


def main() -> None:
    """Run the command line and end the process with its exit code. A hook runs after every tool call of a client: it is
    answered without the rest."""
    if len(sys.argv) == 3 and sys.argv[1] == "hook" and sys.argv[2] in HOOKED:
        from importlib import import_module

        from contextstash.hosts.hooks.dispatch import run as run_hook

        raise SystemExit(run_hook(import_module(f"contextstash.hosts.hooks.{HOOKED[sys.argv[2]]}").HOST))
    from contextstash.cli.app import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
