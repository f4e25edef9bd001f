"""The key of a session, with which every primary key begins."""

from __future__ import annotations

Key = tuple[str, str]
"""The owner and the id of a session."""

OF_SESSION = "owner = $1 AND session_id = $2"
"""The condition of a session's rows, whose first values are its key."""
