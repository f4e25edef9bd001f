"""Every error that contextstash raises on purpose, in one small tree.

ContextstashError
├── BadInputError            the caller's argument is wrong; the text says what is right
│   └── BadMessageError      a message is not of its provider's form
├── NotFoundError
│   ├── SessionNotFoundError
│   └── HandleNotFoundError
├── OverloadedError          too much of one kind is asked for at once; later it can be done
├── SummarizerError          a writer could not write a summary; another may
└── StoreError               the store itself could not do its work
    ├── StoreBusyError       another process holds the database; nothing was written
    ├── StoreFullError       no room left; nothing was written
    ├── StoreVersionError    the database was written by a newer contextstash
    └── EditConflictError    somebody edited the view meanwhile; plan again

The text of each is one or two sentences for a person or a model: what is wrong, what to do next.
"""


class ContextstashError(Exception):
    """Something contextstash was asked cannot be done; the text says what to do next."""


class BadInputError(ContextstashError):
    """An argument is wrong."""


class BadMessageError(BadInputError):
    """A message is not of its provider's form."""


class NotFoundError(ContextstashError):
    """There is nothing by that name."""


class SessionNotFoundError(NotFoundError):
    """There is no session by that id, or it belongs to somebody else."""


class HandleNotFoundError(NotFoundError):
    """There is no tool output by that handle."""


class OverloadedError(ContextstashError):
    """Too much of one kind is asked for at once; nothing was done."""


class SummarizerError(ContextstashError):
    """A summary could not be written by this writer."""


class StoreError(ContextstashError):
    """The session store could not do its work."""


class StoreBusyError(StoreError):
    """Another process holds the database; nothing was written."""


class StoreFullError(StoreError):
    """The disk is full; nothing was written."""


class StoreVersionError(StoreError):
    """The database was written by a newer contextstash."""


class EditConflictError(StoreError):
    """The session's view was edited by somebody else meanwhile."""
