"""A call and its output in the search index: the number that they have in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from contextstash_storage.codec.record_json import fields_of
from contextstash_storage.records import Block
from contextstash_storage.search.documents import Document, Kind

CALL_MESSAGES = 60
"""How many messages before an output are searched for its call; as many as when the output is named by its call."""

_BLOCKS = 65_536
"""More blocks than a message has that is stored; the number of a pair is made of a message's and a block's."""


def own_pair(message: int, block: int) -> int:
    """The number that a call and its output have in common: the call's message and block."""
    return message * _BLOCKS + min(block, _BLOCKS - 1)


def call_of_pair(pair: int) -> tuple[int, int]:
    """The message and block of a pair's call."""
    return divmod(pair, _BLOCKS)


class PairedCalls(Protocol):
    """The calls before a message."""

    def pair(self, call_id: str) -> int:
        """The pair of the last call of this id, 0 if there is none."""
        ...


def pair_of(message: int, blocks: Sequence[Block], document: Document, calls: PairedCalls) -> int:
    """The pair that a document is of; 0 for what was said, its own if it is a call, or an output whose call is not
    recorded."""
    if document.kind is Kind.TEXT:
        return 0
    own = own_pair(message, document.block)
    if document.kind is Kind.CALL or document.block >= len(blocks):
        return own
    call_id = blocks[document.block].call_id
    return own if call_id is None else calls.pair(call_id) or own


class MessageCalls:
    """The calls of one message, by what is stored with it as `derived`."""

    def __init__(self, message: int, derived: str) -> None:
        self._message = message
        self._derived = derived

    def pair(self, call_id: str) -> int:
        """The pair of the first call of this id, 0 if there is none."""
        if call_id.isascii() and call_id not in self._derived:
            return 0
        return self._pairs.get(call_id, 0)

    @cached_property
    def _pairs(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number, block in enumerate(fields_of(self._derived).get("blocks", ())):
            if block["type"] == "tool_call" and block.get("call_id"):
                found.setdefault(block["call_id"], own_pair(self._message, number))
        return found
