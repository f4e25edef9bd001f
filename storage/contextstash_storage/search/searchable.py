"""A stored message as the search index needs it, the same for every store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contextstash_storage.codec.bodies import body_of
from contextstash_storage.codec.segments import Stored
from contextstash_storage.codec.text_references import referred, sources
from contextstash_storage.records import Block
from contextstash_storage.search.documents import Document, Piece, documents, pieces


@dataclass(frozen=True, slots=True)
class Searchable:
    """A message's blocks, tool and main argument of its outputs by block in order, and what is stored of its
    content."""

    blocks: tuple[Block, ...]
    calls: Mapping[int, tuple[str, str]]
    stored: Stored

    def documents(self) -> list[Document]:
        return documents(self.text(), self.blocks, self.calls)

    def text(self) -> str:
        """The text that was indexed."""
        return referred(self.stored.text or b"[]", sources(body_of(self.stored.body), self.calls.values()))

    def pieces(self) -> list[Piece]:
        return list(pieces(self.documents()))

    def document(self, block: int) -> Document | None:
        """The text of a block; None if there is none."""
        return next((document for document in self.documents() if document.block == block), None)

    def shown_piece(self, block: int, number: int) -> str:
        """The text of a piece of a block, empty if there is none."""
        document = self.document(block)
        texts = [""] if document is None else [piece.text for piece in pieces([document])]
        return texts[min(number, len(texts) - 1)]
