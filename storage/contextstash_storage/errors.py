"""Every error that contextstash raises on purpose.

The text of each is one or two sentences for a person or a model: what is wrong, what to do next.
"""

from __future__ import annotations


class ContextstashError(Exception):
    """A request cannot be fulfilled; the text says what to do next."""


class BadInputError(ContextstashError):
    """The caller's argument is wrong; the text says what is right."""


class BadMessageError(BadInputError):
    """A message is not in its provider's format."""


class NotFoundError(ContextstashError):
    """Nothing with that name exists."""


class SessionNotFoundError(NotFoundError):
    """No session has that id, or it belongs to another owner."""


class HandleNotFoundError(NotFoundError):
    """No tool output has that handle."""


class SessionDeletedError(ContextstashError):
    """The session was deleted here; only what its user asks for records it again."""


class StoreError(ContextstashError):
    """The session store could not do its work."""


class StoreBusyError(StoreError):
    """Another process locks the database; nothing was written."""


class DamagedError(StoreError):
    """What is stored is not what was written; everything else can be read."""


class EditConflictError(StoreError):
    """The session's view was edited meanwhile; plan again."""
