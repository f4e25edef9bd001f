"""Turns: messages with their texts, the input of digests and summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contextstash_storage.records import Block, Kind, Role


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `texts[i]` is the whole text of `blocks[i]`; `handles` maps the index of a block to the handle of
    its archived output. For a message in the user's role, `kind` is whether a person wrote it."""

    seq: int
    role: Role
    blocks: tuple[Block, ...]
    texts: tuple[str, ...]
    handles: Mapping[int, str] = field(default_factory=dict)
    kind: Kind = "message"
