from contextstash.library.open_stash import open_stash as open_stash
from contextstash.library.open_stash import open_stash_sync as open_stash_sync

__version__: str
