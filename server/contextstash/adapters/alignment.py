"""Aligns the messages of a request with those of the program's own list.

Frameworks have message types of their own. A message that a request leaves unchanged goes to the model as the
framework's own object, with everything in it that a provider's JSON does not show.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from contextstash_storage.records import Native


def align(sent: Sequence[Native], given: Sequence[Native]) -> list[int | None]:
    """For each message that is sent, the position of an equal one that was given, after the one before; None if it was
    shortened or added."""
    places: dict[str, deque[int]] = defaultdict(deque)
    for place, native in enumerate(given):
        places[_key(native)].append(place)
    found: list[int | None] = []
    last = -1
    for native in sent:
        queue = places.get(_key(native), deque())
        while queue and queue[0] <= last:
            queue.popleft()
        if queue:
            last = queue.popleft()
            found.append(last)
        else:
            found.append(None)
    return found


def _key(native: Native) -> str:
    return repr(sorted(native.items(), key=lambda item: item[0]))
