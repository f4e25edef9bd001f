"""Providers' refusals of a request that does not fit the context window, as somebody met each: `refusals.toml`."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """What was seen at `source`, and the numbers in it."""

    source: str
    error: Any
    limit: int | None = None
    prompt: int | None = None
    reply: int | None = None


_ROWS = {
    table: [Seen(**row) for row in rows]
    for table, rows in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
TOO_MANY_BYTES = _ROWS.pop("too_many_bytes")
"""Refusals of a request because of its bytes."""

LOOK_ALIKES = _ROWS.pop("look_alikes")
"""Errors about something else."""

SEEN = [seen for rows in _ROWS.values() for seen in rows]
