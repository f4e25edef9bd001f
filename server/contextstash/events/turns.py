"""Turns: messages with their texts, the input of digests and summaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from contextstash.outputs.own_tools import is_own_call
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

    @property
    def said(self) -> list[str]:
        """The texts of the message that are neither calls nor results nor thinking."""
        return [text for block, text in zip(self.blocks, self.texts, strict=True) if block.type == "text"]

    @property
    def ends_work(self) -> bool:
        """Whether this is a message of the assistant without a call: it waits for the user. What an earlier one asks,
        the assistant asks itself. Some clients record its thinking as a message; that ends nothing."""
        types = {block.type for block in self.blocks}
        return self.role == "assistant" and "tool_call" not in types and types != {"thinking"}


FILLERS = ("No response requested.", "(no content)")  # of Claude Code, for example behind a local command


def conversation_of(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """The turns without the calls of our own tools and their results, and without replies that a client wrote itself; a
    turn with nothing else is left out."""
    own: set[str] = set()
    kept = []
    for turn in turns:
        own |= {block.call_id for block in turn.blocks if block.call_id and _is_own(block)}
        places = [place for place, block in enumerate(turn.blocks) if block.call_id not in own and not _is_own(block)]
        if turn.role == "assistant" and turn.texts and all(text.strip() in FILLERS for text in turn.texts):
            continue
        if len(places) == len(turn.blocks):
            kept.append(turn)
        elif places:
            kept.append(_only(turn, places))
    return tuple(kept)


def _is_own(block: Block) -> bool:
    return block.type in ("tool_call", "tool_result") and is_own_call(block.tool, block.argument)


def _only(turn: Turn, places: list[int]) -> Turn:
    """The turn with the blocks at these places alone."""
    return replace(
        turn,
        blocks=tuple(turn.blocks[place] for place in places),
        texts=tuple(turn.texts[place] for place in places),
        handles={new: turn.handles[place] for new, place in enumerate(places) if place in turn.handles},
    )
