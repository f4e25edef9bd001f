"""Where a fault of ours happened: by type and place alone, since an error's text may quote what a session holds."""

from __future__ import annotations

import traceback
from pathlib import Path

SERVER = Path(__file__).parent
OUR_FRAMES = 6
"""How many of our frames are named, the innermost first: enough to tell the use case from the line."""


def fault_of(error: BaseException) -> str:
    """The error's type and the innermost frames of ours, such as
    `KeyError at service/pruning.py:114 in _carry_out <- service/stash.py:139 in prune_tool_outputs`."""
    places = [
        f"{place}:{frame.lineno} in {frame.name}"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if (place := _own_file(frame.filename))
    ]
    return f"{type(error).__name__} at {' <- '.join(places[:OUR_FRAMES]) or 'no line of contextstash'}"


def _own_file(filename: str) -> str | None:
    """The file's name inside our packages; None if it is another's. A checkout may itself stand in a folder named like
    us, with other packages below it, so the name alone does not tell."""
    path = Path(filename)
    if path.is_relative_to(SERVER):
        return path.relative_to(SERVER).as_posix()
    parts = path.parts
    return "/".join(parts[parts.index("contextstash_storage") :]) if "contextstash_storage" in parts else None
