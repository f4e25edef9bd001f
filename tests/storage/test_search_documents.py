"""A message's text becomes one document for each text, call and output, and pieces that make up the whole text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash_storage.documents import (
    PIECE_CHARACTERS,
    Document,
    TextKind,
    documents,
    indexed,
    pieces,
)
from contextstash_storage.records import Block, BlockType
from tests.support.effort import examples

ARGUMENTS = '{"command":"cd src\\nmake all","timeout":20}'


def test_each_text_is_a_document_and_a_call_is_read_as_its_values() -> None:
    types: list[BlockType] = ["text", "image", "tool_call", "tool_result", "tool_result"]
    blocks = [Block(type=each, tool="Bash") for each in types]
    assert documents([(0, "Hello"), (2, ARGUMENTS), (3, "one"), (4, "")], blocks) == [
        Document(0, TextKind.TEXT, "Hello"),
        Document(2, TextKind.CALL, "Bash\ncd src\nmake all\n20"),
        Document(3, TextKind.OUTPUT, "one"),
        Document(4, TextKind.OUTPUT, ""),
    ]


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from(["word ", "\n", "x" * 5_000, "y" * 40_000]), max_size=40))
def test_pieces_are_short_and_make_up_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    cut = pieces(Document(0, TextKind.TEXT, text))
    assert "".join(piece.text for piece in cut) == text
    assert all(len(piece.text) <= PIECE_CHARACTERS for piece in cut)
    assert [piece.piece for piece in cut] == list(range(len(cut)))


def test_camel_case_names_are_found_by_their_words_too() -> None:
    text = "readFile2 HTTPServer x9Y_z and noNe; fooBarBaz, fooBarBaz"
    assert indexed(text) == f"{text} read File2 x9 Y_z no Ne foo Bar Baz"
