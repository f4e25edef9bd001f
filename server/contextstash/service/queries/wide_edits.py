"""Edits as they were exported before each kind had fields of its own: one wide record, with what is foreign empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextstash_storage.records import (
    ArchiveEdit,
    DigestEdit,
    EditRecord,
    RestoreEdit,
    RewindEdit,
    StripEdit,
    SummaryEdit,
    TruncateEdit,
)

_TYPES: tuple[type[EditRecord], ...] = (
    ArchiveEdit,
    TruncateEdit,
    DigestEdit,
    StripEdit,
    SummaryEdit,
    RewindEdit,
    RestoreEdit,
)
_FIELDS = {kind.model_fields["kind"].default: kind.model_fields.keys() for kind in _TYPES}


def narrowed(wide: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that an edit of this kind has. Raises KeyError if there is no such kind."""
    own = {name: value for name, value in wide.items() if name in _FIELDS[wide["kind"]]}
    return {**own, "after_seq": wide["last_seq"]} if wide["kind"] == "digest" else own
