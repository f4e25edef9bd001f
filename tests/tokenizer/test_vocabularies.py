"""Token counting with the carried vocabularies: exact, offline, and unbreakable by odd texts."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.tokenizer import MAX_PIECE_CHARACTERS, count_with, pieces

VOCABULARIES = ("cl100k_base", "o200k_base")


@pytest.mark.parametrize(
    ("name", "text", "tokens"),
    [
        ("cl100k_base", "hello world", 2),
        ("o200k_base", "hello world", 2),
        ("cl100k_base", "tiktoken is great!", 6),
        ("o200k_base", "", 0),
    ],
)
def test_known_texts_have_their_known_counts(name: str, text: str, tokens: int) -> None:
    assert count_with(name)(text) == tokens


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert count_with("o200k_base")("no network") > 0


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize(
    "text",
    [" " * 1_000_001, "\n" * 1_000_001, "a" * 1_000_000, "<|endoftext|>", "lone \ud800 surrogate", "\0" * 1_000],
    ids=["spaces", "line ends", "one letter", "special token", "surrogate", "NUL"],
)
def test_odd_texts_are_counted_too(name: str, text: str) -> None:
    assert 0 < count_with(name)(text) <= len(text) + 20


@given(st.text(alphabet="ab \n", max_size=300), st.integers(1, 40))
def test_pieces_join_to_the_text(text: str, repeats: int) -> None:
    long = text * repeats * 40
    cut = list(pieces(long))
    assert "".join(cut) == long
    assert all(len(piece) <= MAX_PIECE_CHARACTERS for piece in cut)
