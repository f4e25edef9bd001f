"""The embedded session store: one SQLite file, safely shared by several processes.

    from contextstash_storage.sqlite import open_sqlite

    store = await open_sqlite(Path("sessions.db"))

Open it once in a process: its threads and caches are shared by all sessions.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextstash_storage.sqlite.store import open_sqlite

__all__ = ["open_sqlite"]


def __getattr__(name: str) -> object:
    # Imported at its first use: the store imports the modules of this folder, which import this one.
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from contextstash_storage.sqlite import store

    return getattr(store, name)
