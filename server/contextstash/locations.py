"""Where contextstash keeps things on a user's machine."""

from __future__ import annotations

import os
from pathlib import Path


def default_database() -> Path:
    """The database where none is named: `CONTEXTSTASH_DB`, else `sessions.db` in the user's data folder."""
    named = os.environ.get("CONTEXTSTASH_DB")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_data_path

    return user_data_path("contextstash", appauthor=False) / "sessions.db"
