"""Edits as exported in version 1: one wide record for all kinds, in which fields of other kinds are empty."""

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
    """The fields that belong to the edit's kind. Raises KeyError if the kind is unknown."""
    own = {name: value for name, value in wide.items() if name in _FIELDS[wide["kind"]]}
    return {**own, "after_seq": wide["last_seq"]} if wide["kind"] == "digest" else own
