"""The type and place of an internal error, without its text, which may quote the content of a session."""

from __future__ import annotations

import traceback
from pathlib import Path

SERVER = Path(__file__).parent.parent
MAX_FRAMES = 6
"""How many of our frames are named, the innermost first: enough to see which use case ran the line."""


def error_trace(error: BaseException) -> str:
    """The error's type and the innermost frames of contextstash, such as
    `KeyError at service/reduction/prune.py:114 in _carry_out <- service/stash.py:139 in prune_tool_outputs`."""
    places = [
        f"{place}:{frame.lineno} in {frame.name}"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if (place := _own_file(frame.filename))
    ]
    return f"{type(error).__name__} at {' <- '.join(places[:MAX_FRAMES]) or 'no line of contextstash'}"


def _own_file(filename: str) -> str | None:
    """The file's name inside our packages; None if it belongs to another package. The name of a folder is not
    enough: a checkout may be in a folder named `contextstash` that holds other packages too."""
    path = Path(filename)
    if path.is_relative_to(SERVER):
        return path.relative_to(SERVER).as_posix()
    parts = path.parts
    return "/".join(parts[parts.index("contextstash_storage") :]) if "contextstash_storage" in parts else None
