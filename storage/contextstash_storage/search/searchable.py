"""A stored message as the search index needs it, the same for every store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contextstash_storage.codec.bodies import Source, damaged, put_together, unfolded
from contextstash_storage.codec.text_references import is_referring, referred, sources
from contextstash_storage.errors import StoreError
from contextstash_storage.records import Block
from contextstash_storage.search.documents import Document, Piece, documents, pieces


@dataclass(frozen=True, slots=True)
class Searchable:
    """A message's blocks, tool and main argument of its outputs by block in order, and its text as it is stored, which
    is made whole by the body, its large strings (path and content) and what that is read with."""

    blocks: tuple[Block, ...]
    calls: Mapping[int, tuple[str, str]]
    stored: bytes
    body: bytes
    blobs: tuple[tuple[str, bytes], ...]
    source: Source | None = None

    def documents(self) -> list[Document]:
        return documents(self.text(), self.blocks, self.calls)

    def text(self) -> str:
        """The text that was indexed. Raises StoreError if it is damaged."""
        if not is_referring(self.stored):
            return unfolded(self.stored, [content for _, content in self.blobs])
        body = put_together(self.body, self.blobs, self.source)
        try:
            return referred(self.stored, sources(body, self.calls.values()))
        except (ValueError, IndexError) as error:
            raise damaged() from error

    def pieces(self) -> list[Piece]:
        return list(pieces(self.documents()))

    def document(self, block: int) -> Document | None:
        """The text of a block; None if there is none, or it is damaged: other hits are shown all the same."""
        try:
            return next((document for document in self.documents() if document.block == block), None)
        except StoreError:
            return None

    def shown_piece(self, block: int, number: int) -> str:
        """The text of a piece of a block, empty if there is none."""
        document = self.document(block)
        texts = [""] if document is None else [piece.text for piece in pieces([document])]
        return texts[min(number, len(texts) - 1)]
