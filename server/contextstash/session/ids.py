"""The ids of sessions: which ones are valid, and which name sessions that hold archived outputs."""

from __future__ import annotations

from contextstash_storage.errors import BadInputError

OUTPUTS_SESSION = "outputs"
"""The session for archived outputs that belong to no session."""

OUTPUTS_SUFFIX = ".outputs"
"""The id of a session that archives the outputs of another one is the other's id and this suffix."""


def is_archive_id(session_id: str) -> bool:
    """Whether a session of this id holds archived outputs, not a conversation."""
    return session_id == OUTPUTS_SESSION or session_id.endswith(OUTPUTS_SUFFIX)


def check_conversation_id(session_id: str) -> None:
    """Raises BadInputError if no conversation can have this id. One with an archive's id would be searched, handed out
    and deleted with the outputs of another session."""
    check_session_id(session_id)
    if is_archive_id(session_id):
        raise BadInputError(
            f"The session_id '{OUTPUTS_SESSION}', and those that end with '{OUTPUTS_SUFFIX}', are kept for archived"
            " outputs: choose another one."
        )


def check_session_id(session_id: str) -> None:
    """Raises BadInputError if the id is not safe in a URI and on a command line."""
    valid = 0 < len(session_id) <= 200 and all(c.isprintable() and c not in "/?#%\\ " for c in session_id)
    if not valid:
        raise BadInputError(
            "A session_id is 1 to 200 printable characters without spaces, slashes, '?', '#', '%' or backslashes."
        )
