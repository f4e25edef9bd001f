from contextstash.library.blocking import open_stash_sync as open_stash_sync
from contextstash.library.opened import open_stash as open_stash

__version__: str
