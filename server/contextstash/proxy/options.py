"""The user's options for the proxy's edits of requests."""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.proxy.requests.preparation import DEFAULT_KEEP_TOKENS

STEP_SECONDS = 1.0
"""By default, how long a request waits for the database before it goes out as it is. Clients wait longer for
the first byte anyway; another process's transaction takes some 10 ms."""


@dataclass(frozen=True)
class ProxyOptions:
    """How the proxy edits. `record` is False if nothing may be stored: then sessions live in memory, and only outputs
    of calls that read are pruned, which the model can make again. `step_seconds` is how long a request waits for the
    database. `configured` says that the client is known to have our server, `project` is the folder in which it was
    started, `window` the size at which it was told to compact."""

    keep_tokens: int = DEFAULT_KEEP_TOKENS
    record: bool = True
    prune: bool = True
    step_seconds: float = STEP_SECONDS
    configured: bool = False
    project: str | None = None
    window: int | None = None
