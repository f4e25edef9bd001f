"""The user's options for the proxy's edits of requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

DEFAULT_KEEP_TOKENS = 8_000
"""Tokens of the newest tool results that stay: about ten outputs, as many as the preset `rolling` keeps. Replayed on
recorded sessions, 12,000 cost 2 % more (bench/proxy). Less would save more, but the model works with what it has just
read."""

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


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """What a prune leaves: the newest tokens of tool outputs, and with `only_reads` all outputs but those of calls that
    show what is there, which can be made again."""

    keep_tokens: int = DEFAULT_KEEP_TOKENS
    only_reads: bool = False

    @property
    def quarter(self) -> PruneLimits:
        """The limits for a request that is too long still."""
        return replace(self, keep_tokens=self.keep_tokens // 4)
