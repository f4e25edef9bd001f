"""A host's own files: regular ones below the folders in which it keeps them.

The paths come from outside: from a hook's event, or from a tool's response. A path is resolved first, so that neither
`..` nor a link leads out of the host's folders.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from contextstash.files.regular_files import is_below, resolved
from contextstash_storage.errors import BadInputError


def own_file(path: str, host: str, folders: Sequence[Path]) -> Path | None:
    """The file at a path that a host passed, resolved; None if it does not exist (a new session has no transcript yet).
    Raises BadInputError if it is not a regular file below one of the host's own folders."""
    found = resolved(Path(path).expanduser())
    own = [folder.expanduser() for folder in folders]
    if not any(is_below(found, folder) for folder in own):
        kept = " or ".join(map(str, own))
        raise BadInputError(f"Not read: {str(found)[:200]} is outside of {kept}, where {host} keeps its files.")
    try:
        mode = found.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise BadInputError(f"Not read: {str(found)[:200]} is not a regular file.")
    return found
