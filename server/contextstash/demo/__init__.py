"""The session that ships with contextstash."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextstash_storage.records import Native

SESSION_ID = "demo"

SETTINGS = {"window": 40_000, "automatic": False}
"""A small window, which a session of an hour fills; no automatic reduction, so that each step is visible."""


def sample_file() -> Traversable:
    """The file of the session that ships with the package."""
    return files(__name__) / "session.jsonl"


def sample_session() -> list[Native]:
    """The messages of the session that ships with the package."""
    return [json.loads(line) for line in sample_file().read_text(encoding="utf-8").splitlines()]
