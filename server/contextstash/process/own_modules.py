"""Keeps the interpreters that this process starts from importing modules of the current folder."""

from __future__ import annotations

import os


def import_nothing_from_here() -> None:
    """Keep the interpreters that this process starts from importing modules of the current folder. anyio starts a
    worker with `python -m`, which looks there first: it is often a cloned repository, whose own anyio would run."""
    os.environ["PYTHONSAFEPATH"] = "1"
