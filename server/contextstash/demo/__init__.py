"""The session that ships with contextstash."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextstash_storage.records import Native

SESSION_ID = "demo"

SETTINGS = {"window": 40_000, "automatic": False}
"""A small window, which a session of an hour fills; no automatic reduction, so that each step is visible."""


def sample_session() -> list[Native]:
    """The messages of the session that ships with the package."""
    lines = (files(__name__) / "session.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
