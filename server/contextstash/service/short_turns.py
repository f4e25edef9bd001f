"""Short turns for threads: while a long computation runs in one, calls that are served by others do not wait for it.

Python's threads take turns every 5 ms, and a call needs several turns: one that takes 2 ms took 50 ms while a session
was compacted. With turns of a fifth of a millisecond the computation itself takes about 4 % longer; with half a
millisecond 2 %, but the longest wait of other calls is a third longer (bench/speed). A full garbage
collection is one turn, however long it takes: over all that a prune or compaction of a long session holds, 40 to 60 ms.
Nearly all of that is freed without one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TURN_SECONDS = 0.0002

COLLECTIONS_TO_FULL = 200
"""After how many collections of younger objects one of all objects follows, in place of Python's 10. A prune or
compaction of a session of any length takes about 15: so none comes during one, and still some do in a process that
reduces sessions all the time."""

_usual: list[tuple[float, tuple[int, int, int]]] = []
"""The interval and the thresholds at each begin that has not ended yet."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Within it threads take short turns. Used on the event loop's thread only, also several times at once."""
    _usual.append((sys.getswitchinterval(), gc.get_threshold()))
    interval, (youngest, young, old) = _usual[0]
    sys.setswitchinterval(min(TURN_SECONDS, interval))
    gc.set_threshold(youngest, young, max(COLLECTIONS_TO_FULL, old))
    try:
        yield
    finally:
        interval, thresholds = _usual[0]
        _usual.pop()
        if not _usual:
            sys.setswitchinterval(interval)
            gc.set_threshold(*thresholds)
