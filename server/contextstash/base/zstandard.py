"""Zstandard: Python has it from 3.14 on, a package with the same interface before. It is imported when first needed."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

ZSTANDARD = ("compression.zstd", "backports.zstd")
"""The modules with this interface, the first one that is installed is taken."""


def zstandard() -> ModuleType:
    """The module. Raises ImportError if there is none."""
    for name in ZSTANDARD:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ImportError(f"none of {', '.join(ZSTANDARD)} is installed")
