"""The largest body that is read, and how many bytes of bodies the proxy holds at a time."""

from __future__ import annotations

MAX_BODY_BYTES = 48 << 20
"""Larger bodies are passed on unread. Anthropic refuses requests over 32 MB."""

MAX_HELD_BYTES = 128 << 20
"""A quarter of a gigabyte is in use then, since a body that is read is decoded too. Requests are 1 to 4 MB: more than
thirty at a time. What does not fit is passed on as it comes, unread and unedited."""


class HeldBodies:
    """The bytes that all running requests hold."""

    def __init__(self, most: int = MAX_HELD_BYTES) -> None:
        self._most = most
        self._held = 0

    def take(self, size: int) -> bool:
        """Count so many bytes more; False if they do not fit."""
        if self._held + size > self._most:
            return False
        self._held += size
        return True

    def give_back(self, size: int) -> None:
        """Count so many bytes less."""
        self._held -= size
