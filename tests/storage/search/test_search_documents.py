"""A message's text becomes one document for each text, call and output, and pieces that make up the whole text."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from contextstash_storage.records import Block
from contextstash_storage.search.documents import PIECE_CHARACTERS, Document, Kind, documents, indexed, pieces
from tests.support.effort import examples

ARGUMENTS = '{"command":"cd src\\nmake all","timeout":20}'


def test_each_block_is_a_document_and_a_call_is_read_as_its_values() -> None:
    blocks = (
        Block(type="text", size=5),
        Block(type="image", size=0),
        Block(type="tool_call", tool="Bash", size=len(ARGUMENTS)),
    )
    assert documents(f"Hello\nBash\n{ARGUMENTS}", blocks, {}) == [
        Document(0, Kind.TEXT, "", "", "Hello"),
        Document(2, Kind.CALL, "Bash", "", "Bash\ncd src\nmake all\n20"),
    ]


def test_outputs_of_one_message_are_documents_of_their_own() -> None:
    blocks = (Block(type="tool_result", size=3), Block(type="tool_result", size=0), Block(type="tool_result", size=2))
    calls = {0: ("Read", "a.py"), 1: ("Read", "b.py"), 2: ("Bash", "")}
    assert documents("Read a.py\none\nRead b.py\nBash \nab", blocks, calls) == [
        Document(0, Kind.OUTPUT, "Read", "Read a.py", "one"),
        Document(1, Kind.OUTPUT, "Read", "Read b.py", ""),
        Document(2, Kind.OUTPUT, "Bash", "Bash ", "ab"),
    ]


def test_a_text_that_is_not_made_of_its_blocks_is_one_document() -> None:
    assert documents("something else", (Block(type="text", size=3),), {}) == [
        Document(0, Kind.TEXT, "", "", "something else")
    ]
    assert documents("an output", (), {1: ("Read", "a.py")}) == [
        Document(1, Kind.OUTPUT, "Read", "Read a.py", "an output")
    ]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(["word ", "\n", "x" * 5_000, "y" * 40_000]), max_size=40))
def test_pieces_are_short_and_make_up_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    cut = list(pieces([Document(0, Kind.TEXT, "", "", text)]))
    assert "".join(piece.text for piece in cut) == text
    assert all(len(piece.text) <= PIECE_CHARACTERS for piece in cut)
    assert [piece.number for piece in cut] == list(range(len(cut)))


FORMER_CAMEL_NAME = re.compile(r"\b\w*?[a-z0-9][A-Z]\w*")


@given(st.text(alphabet="aAzZ09_ é.²ªÅßԱա文-\n", max_size=60))
@example("readFile2 HTTPServer x9Y_z and noNe; fooBarBaz")
def test_camel_case_names_are_split_as_databases_have_them(text: str) -> None:
    """The index needs exactly the text that was inserted in order to remove it again."""
    names = dict.fromkeys(FORMER_CAMEL_NAME.findall(text))
    expected = " ".join([text, *(re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", name) for name in names)])
    assert indexed(text) == expected
