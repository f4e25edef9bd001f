"""The signals that ask a server to end."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator

import anyio


async def end_signals() -> AsyncIterator[int]:
    """SIGTERM and SIGINT as they arrive. On Windows it never yields: Python's KeyboardInterrupt ends the server."""
    if sys.platform == "win32":
        await anyio.sleep_forever()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for number in received:
            yield number
