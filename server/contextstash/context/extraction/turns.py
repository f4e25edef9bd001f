"""Turns: messages with their texts, as the digests and summaries read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contextstash_storage.records import Block, Kind, Role


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `texts[i]` is the whole text of `blocks[i]`; `handles` names the archived output of a
    block, by block index. `kind` says of a message in the user's role whether a person wrote it."""

    seq: int
    role: Role
    blocks: tuple[Block, ...]
    texts: tuple[str, ...]
    handles: Mapping[int, str] = field(default_factory=dict)
    kind: Kind = "message"
