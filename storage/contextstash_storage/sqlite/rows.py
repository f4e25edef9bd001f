"""What rows of the database say: the time of a message, and whether a session is seen."""

from __future__ import annotations

STORED_TIME = "ifnull(messages.created, messages.created_at)"
"""What `time_of` reads of a message."""

TIME_TEXT = (
    "CASE WHEN created IS NULL THEN created_at ELSE"
    " strftime('%Y-%m-%dT%H:%M:%S', (created - (created % 1000000 + 1000000) % 1000000) / 1000000, 'unixepoch')"
    " || iif(created % 1000000, printf('.%06d', (created % 1000000 + 1000000) % 1000000), '') || '+00:00' END"
)
"""The same as the text that datetime.isoformat() writes, which can be compared with those of sessions."""


DELETED_OWNER = "\x1fdeleted"
"""The owner of sessions that are being deleted. No user's name contains a control character."""


STAGED_OWNER = "\x1fstaged"
"""The owner of sessions that are being imported."""


IS_SEEN = f"owner NOT IN ('{DELETED_OWNER}', '{STAGED_OWNER}')"
