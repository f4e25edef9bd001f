"""A serving process: the settings of its interpreter, and the signals that ask it to end. A library sets none of them:
the interpreter belongs to the program that uses it."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import AsyncIterator

import anyio

TURN_SECONDS = 0.001
"""How long a thread runs before another one gets its turn, in place of 0.005. While a session is reduced in a thread, a
call of another client changes threads some ten times, and waits as long each time. A shorter turn costs throughput."""


NEW_OBJECTS = 10_000
"""After how many new objects the garbage collector looks at these, in place of 700. A request of 2,000 messages makes
5,000 that are gone at its end: each look at those that are still there takes 0.1 ms. Cycles are freed later."""


def own_interpreter() -> None:
    """Let short calls not wait for a reduction of a long session: threads take shorter turns, and what is loaded so far
    stays, so that the garbage collector does not look through it again and again (20 to 30 ms each time)."""
    sys.setswitchinterval(TURN_SECONDS)
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    gc.freeze()


async def end_signals() -> AsyncIterator[int]:
    """SIGTERM and SIGINT as they arrive. On Windows it never yields: Python's KeyboardInterrupt ends the server."""
    if sys.platform == "win32":
        await anyio.sleep_forever()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for number in received:
            yield number
