"""The search index's documents: one document for each text, tool call and tool output, cut into pieces.

Pure: the same message always has the same documents. The index could not remove a document otherwise, as it has to be
told exactly what was inserted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from contextstash_storage.records import Block, NewMessage

PIECE_CHARACTERS = 32_000
"""A longer text is indexed as several pieces, so that no transaction has to take it whole: one of this size takes about
4 ms. Recall is the same for 8,000, 32,000 and whole texts (half of the recorded sessions, outputs fetched again)."""

MAX_NAME_LENGTH = 64
"""Longer runs of letters are data, not names made of words."""

SEARCHED_CHARACTERS = 20_000
"""How much of a text is searched for names at a time; that takes about 1 ms."""

_SPACE = re.compile(r"\s")
_HUMP = re.compile(r"[A-Z](?<=[a-z0-9].)")
"""The capital inside a camelCase name. Looking for it first, and for the name around it then, takes 40 % of the time of
one pattern for the whole name, which would be tried at every word."""

_WORD = re.compile(r"\w+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LETTERS = re.compile(r"[^\W_]+")
_UNSEARCHED = ("image", "document", "opaque")


class Kind(IntEnum):
    """What a document is: text that was said, a tool call's arguments, or a tool's output."""

    TEXT = 0
    CALL = 1
    OUTPUT = 2


@dataclass(frozen=True, slots=True)
class Document:
    """One text of a message. `block` is the number of the block that it is the text of; `call` is the tool and main
    argument of an output."""

    block: int
    kind: Kind
    tool: str
    call: str
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document, which is one row of the index."""

    document: Document
    number: int
    text: str

    @property
    def place(self) -> str:
        """The words by which it is filtered; the store adds one for the session."""
        marks = (kind_mark(self.document.kind), tool_mark(self.document.tool) if self.document.tool else "")
        return " ".join(mark for mark in marks if mark)

    def fields(self, *, call_is_recorded: bool) -> tuple[str, str]:
        """The text of its call's arguments and its other text, as the index sees them. An output is found by its call,
        which is a document of its own if it is recorded."""
        if self.document.kind is Kind.CALL:
            return indexed(self.text), ""
        heads = self.document.kind is Kind.OUTPUT and not self.number and not call_is_recorded
        return indexed(self.document.call) if heads else "", indexed(self.text)


def documents(text: str, blocks: Sequence[Block], calls: Mapping[int, tuple[str, str]]) -> list[Document]:
    """The documents of a message whose searchable text this is. `calls` are the tool and main argument of its outputs
    by block. A text that is not composed of the blocks' texts is one document."""
    found = _by_block(text, blocks, calls)
    if found is not None:
        return found
    for block, (tool, argument) in calls.items():
        return [Document(block, Kind.OUTPUT, tool, f"{tool} {argument}", text)]
    return [Document(0, Kind.TEXT, "", "", text)]


def _by_block(text: str, blocks: Sequence[Block], calls: Mapping[int, tuple[str, str]]) -> list[Document] | None:
    """The texts of the blocks, joined by line breaks, each after the name of its tool; None if they are not."""
    found: list[Document] = []
    place = 0
    for number, block in enumerate(blocks):
        if block.type in _UNSEARCHED:
            continue
        heading = _heading(block, calls.get(number))
        if heading and _is_at(heading, text, place):
            place += len(heading) + 1
        end = place + block.size
        if block.size:
            if end > len(text) or (end < len(text) and text[end] != "\n"):
                return None
            found.append(_document(number, block, calls.get(number), text[place:end]))
            place = end + 1
        elif block.type != "text":
            found.append(_document(number, block, calls.get(number), ""))
    return found if place >= len(text) else None


def _is_at(line: str, text: str, place: int) -> bool:
    """Whether a line stands at a place of the text, to its end."""
    end = place + len(line)
    return text.startswith(line, place) and (end == len(text) or text[end] == "\n")


def _heading(block: Block, call: tuple[str, str] | None) -> str:
    if block.type == "tool_result" and call is not None:
        return " ".join(call)
    return block.tool or "" if block.type == "tool_call" else ""


def _document(number: int, block: Block, call: tuple[str, str] | None, text: str) -> Document:
    if block.type == "tool_result" and call is not None:
        return Document(number, Kind.OUTPUT, call[0], " ".join(call), text)
    if block.type == "tool_call":
        return Document(number, Kind.CALL, block.tool or "", "", f"{block.tool or ''}\n{_values(text)}")
    return Document(number, Kind.TEXT, "", "", text)


def _values(arguments: str) -> str:
    """The values of a call's arguments: in JSON, line breaks and quotes within them are letters to the index."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return "\n".join(_leaves(value)) if isinstance(value, dict | list) else arguments


def _leaves(value: Any) -> Iterator[str]:
    children = [value]
    while children:  # not recursive: arguments may be nested as deep as JSON is read
        child = children.pop()
        if isinstance(child, dict):
            children += reversed(child.values())
        elif isinstance(child, list):
            children += reversed(child)
        elif isinstance(child, str):
            yield child
        elif isinstance(child, int | float) and not isinstance(child, bool):
            yield repr(child)


def pieces(found: Sequence[Document]) -> Iterator[Piece]:
    """The rows of the index for these documents, in order."""
    for document in found:
        start = 0
        number = 0
        while start < len(document.text) or not number:
            end = _cut(document.text, start)
            yield Piece(document, number, document.text[start:end])
            start = end
            number += 1


def _cut(text: str, start: int) -> int:
    """Where a piece ends: after the last line break of its second half, or else the last space."""
    end = start + PIECE_CHARACTERS
    if end >= len(text):
        return len(text)
    middle = start + PIECE_CHARACTERS // 2
    for separator in ("\n", " "):
        place = text.rfind(separator, middle, end)
        if place >= 0:
            return place + 1
    return end


def kind_mark(kind: Kind) -> str:
    """A kind as one word of the index."""
    return f"k{kind.value}"


def tool_mark(tool: str) -> str:
    """A tool's name as one word of the index."""
    return "t" + "".join(_LETTERS.findall(tool.lower()))


def indexed(text: str) -> str:
    """The text as the index sees it, followed by the words that its camelCase names are made of."""
    names = [name for name in dict.fromkeys(_camel_names(text)) if len(name) <= MAX_NAME_LENGTH]
    return storable(" ".join([text, *(_CAMEL.sub(" ", name) for name in names)]))


def _camel_names(text: str) -> Iterator[str]:
    """The camelCase names of a text. It is searched in pieces cut at spaces: while one search lasts, no other thread
    of the process runs, the event loop's included."""
    start = 0
    while start < len(text):
        cut = _SPACE.search(text, start + SEARCHED_CHARACTERS)
        end = cut.start() if cut else len(text)
        while hump := _HUMP.search(text, start, end):
            word = _WORD.match(text, _word_start(text, hump.start(), start))
            assert word is not None
            yield word[0]
            start = word.end()
        start = end


def _word_start(text: str, place: int, first: int) -> int:
    """Where the word at a place begins, not before `first`. Letters, digits and the underscore are a word's."""
    while place > first and (text[place - 1].isalnum() or text[place - 1] == "_"):
        place -= 1
    return place


def storable(text: str) -> str:
    """The text without what SQLite's text can't hold."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


INLINE_CHARACTERS = 120_000
"""A message with more text than this is stored first and indexed afterwards, in pieces: indexing takes about 100 ms for
each million characters, in part at the commit."""

INLINE_BLOCKS = 1_000
"""The same for a message with more blocks: each has at least one row of its own, about 50 µs."""


def is_indexed_later(message: NewMessage) -> bool:
    """Whether a message that is to be stored is indexed after that, in pieces."""
    return len(message.search_text) > INLINE_CHARACTERS or len(message.blocks) > INLINE_BLOCKS
