"""The embedded session store: one SQLite file, safely shared by several processes."""
