"""Loads the presets, whose numbers are in presets.toml."""

from __future__ import annotations

import tomllib
from pkgutil import get_data
from typing import Any

_TABLES = tomllib.loads((get_data(__package__, "presets.toml") or b"").decode())


def _values(table: dict[str, Any]) -> dict[str, Any]:
    merged = {**_TABLES.get(table.get("like", ""), {}), **table}
    return {name: None if value == "none" else value for name, value in merged.items() if name != "like"}


PRESETS: dict[str, dict[str, Any]] = {name: _values(table) for name, table in _TABLES.items()}
"""The values that differ from the default, by preset."""
