"""Every error that contextstash raises on purpose, in one small tree.

ContextstashError
├── BadInputError            the caller's argument is wrong; the text says what is right
│   └── BadMessageError      a message is not of its provider's form
├── NotFoundError
│   ├── SessionNotFoundError
│   └── HandleNotFoundError
├── SessionDeletedError      the session was deleted here, and is not recorded again automatically
├── SummarizerError          a writer could not write a summary; another may
└── StoreError               the store itself could not do its work
    ├── StoreBusyError       another process locks the database; nothing was written
    ├── StoreFullError       no room left; nothing was written
    ├── StoreVersionError    the database was written by another contextstash
    ├── DamagedError         what is stored is not what was written; everything else can be read
    └── EditConflictError    the view was edited meanwhile; plan again

The text of each is one or two sentences for a person or a model: what is wrong, what to do next.
"""


class ContextstashError(Exception):
    """A request cannot be fulfilled; the text says what to do next."""


class BadInputError(ContextstashError):
    """An argument is wrong."""


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


class SummarizerError(ContextstashError):
    """This summarizer could not write a summary."""


class StoreError(ContextstashError):
    """The session store could not do its work."""


class StoreBusyError(StoreError):
    """Another process locks the database; nothing was written."""


class StoreFullError(StoreError):
    """The disk is full; nothing was written."""


class StoreVersionError(StoreError):
    """The database was written by another contextstash."""


class DamagedError(StoreError):
    """What is stored is not what was written."""


class EditConflictError(StoreError):
    """The session's view was edited meanwhile."""
