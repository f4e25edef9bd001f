"""The settings of a serving process's interpreter. A library sets nothing of this: the interpreter belongs to the
program that uses it."""

from __future__ import annotations

import gc
import sys

TURN_SECONDS = 0.001
"""How long a thread runs before another one gets its turn, in place of 0.005. While a session is reduced in a thread, a
call of another client changes threads some ten times, and waits as long each time. A shorter turn costs throughput."""


def own_interpreter() -> None:
    """Let short calls not wait for a reduction of a long session: threads take shorter turns, and what is loaded so far
    stays, so that the garbage collector does not look through it again and again (20 to 30 ms each time)."""
    sys.setswitchinterval(TURN_SECONDS)
    gc.freeze()
