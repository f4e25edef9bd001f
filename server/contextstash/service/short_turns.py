"""Short turns for threads: while a long computation runs in one, calls that are served by others do not wait for it.

Python's threads take turns every 5 ms, and a call needs several turns: one that takes 2 ms took 50 ms while a session
was compacted. With turns of half a millisecond the computation itself takes about 2 % longer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

TURN_SECONDS = 0.0005

_usual: list[float] = []
"""The interval at each begin that has not ended yet."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Within it threads take short turns. Used on the event loop's thread only, also several times at once."""
    _usual.append(sys.getswitchinterval())
    sys.setswitchinterval(min(TURN_SECONDS, _usual[0]))
    try:
        yield
    finally:
        before = _usual[0]
        _usual.pop()
        if not _usual:
            sys.setswitchinterval(before)
