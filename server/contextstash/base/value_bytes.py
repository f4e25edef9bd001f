"""A plain value as bytes, by which an equal value is recognized: a tenth of the time that its JSON would take."""

from __future__ import annotations

import marshal
from typing import Any

MARSHAL_VERSION = 2
"""The newest version of marshal's format whose bytes depend on the value alone: later ones also write which objects
have several references."""


def value_bytes(value: Any) -> bytes | None:
    """Bytes that are equal only for equal values, of the same types and in the same order; None if the value holds
    anything but plain values."""
    try:
        return marshal.dumps(value, MARSHAL_VERSION)
    except ValueError:
        return None
