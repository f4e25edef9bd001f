"""The command line's entry point: `contextstash` and `python -m contextstash`."""

from __future__ import annotations


def main() -> None:
    """Run the command line and end the process with its exit code."""
    from contextstash.cli.app import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
