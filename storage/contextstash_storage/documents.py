"""The search index: a document for each text, tool call and tool output of a message, cut into pieces, and the rows of
these, which are inserted with the message."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from math import log

from contextstash_storage.messages import message_of, messages_before, readable_lines
from contextstash_storage.records import Block, Message, Session, texts_of
from contextstash_storage.transaction import Tx, microseconds, storable

PIECE_CHARACTERS = 32_000
"""A longer text is indexed as several pieces, so that no transaction has to take it whole: one of this size takes about
4 ms. Recall is the same for 8,000, 32,000 and whole texts (half of the recorded sessions, outputs fetched again)."""

MAX_CHARACTERS = 640_000
"""Text of one message that is indexed: its first and its last half are. That takes about 60 ms, and as long again at
the commit, for which other processes wait. The whole text is in the message, and is found in it by its handle."""

MAX_PIECES = 2_000
"""The same by the number of rows, of which each takes about 50 µs."""

MAX_NAME_LENGTH = 64
"""Longer runs of letters are data, not names made of words."""

_HUMP = re.compile(r"[A-Z](?<=[a-z0-9].)")
"""The capital inside a camelCase name. Looking for it first, and for the name around it then, takes 40 % of the time of
one pattern for the whole name, which would be tried at every word."""

_WORD = re.compile(r"\w+")
_WORD_BEFORE = re.compile(r"\w*\Z")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
LETTERS = re.compile(r"[^\W_]+")


CALL_WEIGHT = 10.0
"""How much a word in a call's arguments counts, where one in a text counts 1. Of 10, 15 and 30 the best recall, by
0.5 points, on half of the recorded sessions (outputs that were fetched again: docs/measured.md)."""

MORE_MATCHES = 20_000
"""How many are ranked if too few of the first belong to the sessions that are searched."""

LEAST_RARITY = 1e-6
"""The rarity of a word that is in half of the entries or more, as in FTS5's bm25 function."""


def rarity(count: int, entries: int) -> float:
    """The inverse document frequency of a term that `count` of the entries have, as in FTS5's bm25 function."""
    return max(LEAST_RARITY, log((max(entries, count) - count + 0.5) / (count + 0.5)))


class TextKind(IntEnum):
    """What a document is: text that was said, a tool call's arguments, or a tool's output."""

    TEXT = 0
    CALL = 1
    OUTPUT = 2


@dataclass(frozen=True)
class Document:
    """One text of a message, or piece number `piece` of it, which is one row of the index. `block` is the number of the
    block that it is the text of."""

    block: int
    kind: TextKind
    text: str
    piece: int = 0

    @cached_property
    def fields(self) -> tuple[str, str]:
        """The text of its call's arguments and its other text, as the index sees them."""
        if self.kind is TextKind.CALL:
            return indexed(self.text), ""
        # A line that is repeated says no more. Of recorded outputs 7 % of the text is in such lines.
        return "", indexed("\n".join(dict.fromkeys(self.text.split("\n"))))


def documents(texts: Sequence[tuple[int, str]], blocks: Sequence[Block]) -> list[Document]:
    """The documents of a message with these texts, each after the number of its block."""
    found = []
    for number, text in texts:
        block = blocks[number]
        if block.type == "tool_call":
            found.append(Document(number, TextKind.CALL, f"{block.tool or ''}\n{_values(text)}"))
        else:
            kind = TextKind.OUTPUT if block.type == "tool_result" else TextKind.TEXT
            found.append(Document(number, kind, text))
    return found


def _values(arguments: str) -> str:
    """The values of a call's arguments: in JSON, line breaks and quotes within them are letters to the index."""
    try:
        read = json.loads(arguments)
        return "\n".join(_leaves(read)) if isinstance(read, dict | list) else arguments
    except (ValueError, RecursionError):
        return arguments


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _leaves(child)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield repr(value)


def pieces(document: Document) -> list[Document]:
    """The pieces of a document, in order. One ends after the last line break of its second half, or else the last
    space."""
    text, found, start = document.text, list[Document](), 0
    while start < len(text) or not found:
        middle, end = start + PIECE_CHARACTERS // 2, start + PIECE_CHARACTERS
        if end < len(text):
            breaks = (text.rfind(separator, middle, end) + 1 for separator in ("\n", " "))
            end = next((place for place in breaks if place), end)
        found.append(replace(document, text=text[start:end], piece=len(found)))
        start = end
    return found


def indexed_pieces(found: Sequence[Document]) -> list[Document]:
    """The rows of the index for a message's documents; of very much text, those of its beginning and of its end."""
    cut = [piece for document in found for piece in pieces(document)]

    def within(some: Sequence[Document]) -> int:
        """How many of these are half of what is indexed of one message."""
        sizes = accumulate(len(piece.text) for piece in some[: MAX_PIECES // 2])
        return sum(size <= MAX_CHARACTERS // 2 for size in sizes)

    first = within(cut)
    return [*cut[:first], *cut[max(first, len(cut) - within(cut[::-1])) :]]


def indexed(text: str) -> str:
    """The text as the index sees it, followed by the words that its camelCase names are made of."""
    names: dict[str, str] = {}
    end = 0
    for hump in _HUMP.finditer(text):
        if hump.start() >= end:
            before = _WORD_BEFORE.search(text, max(end, hump.start() - MAX_NAME_LENGTH), hump.start())
            rest = _WORD.match(text, hump.start())
            assert before
            assert rest
            end = rest.end()
            name = before[0] + rest[0]
            names[name] = _CAMEL.sub(" ", name) if len(name) <= MAX_NAME_LENGTH else ""
    return storable(" ".join([text, *filter(None, names.values())]))


CALL_MESSAGES = 60
"""How many messages before an output are searched for its call; as many as when the output is named by its call."""

BLOCKS = 65_536
"""More blocks than a message has that is stored: the number of a place is made of a message's and a block's."""

Calls = dict[str, tuple[int, int]]
"""The positions and blocks of calls, by their ids; of calls with one id the last one's."""


def _calls_of(message: Message) -> Calls:
    blocks = enumerate(message.blocks)
    return {each.call_id: (message.seq, number) for number, each in blocks if each.type == "tool_call" and each.call_id}


def _calls_before(tx: Tx, row: int, messages: Sequence[Message]) -> Calls:
    """The calls in earlier messages that outputs among these may be of."""
    wanted, own = set[str](), set[str]()
    for message in messages:
        wanted |= {each.call_id for each in message.blocks if each.type == "tool_result" and each.call_id} - own
        own |= _calls_of(message).keys()
    found: Calls = {}
    if wanted:
        first = messages[0]
        for message in messages_before(tx, row, first.session_id, first.seq, CALL_MESSAGES, naming=wanted):
            found = {**_calls_of(message), **found}
            if wanted <= found.keys():
                break
    return found


def index_messages(tx: Tx, row: int, session: Session, stored: Sequence[tuple[Message, Sequence[Document]]]) -> None:
    """Make stored messages findable, each by these rows of the index. A call is filed under its output as soon as that
    is recorded: they are one hit."""
    calls = _calls_before(tx, row, [message for message, _ in stored])
    pieces, filed = [], []
    for message, found in stored:
        pieces += [(message.seq, piece) for piece in found]
        calls |= _calls_of(message)
        outputs = ((number, each.call_id) for number, each in enumerate(message.blocks) if each.type == "tool_result")
        filed += [(message.seq, number, row, *calls[call_id]) for number, call_id in outputs if call_id in calls]
    numbers = tx.reserve("entries", "entry", len(pieces)) if pieces else []
    entries, words = [], []
    for number, (seq, piece) in zip(numbers, pieces, strict=True):
        is_call = piece.kind is TextKind.CALL
        own_place = seq * BLOCKS + min(piece.block, BLOCKS - 1) if is_call else None
        call_words = len(LETTERS.findall(piece.fields[0]))
        entries.append((number, row, seq, piece.block, piece.piece, piece.kind.value, own_place, call_words))
        words.append((number, piece.kind.value, *piece.fields))
    tx.many(
        "INSERT INTO entries (entry, session, seq, block, piece, kind, call, call_words)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        entries,
    )
    under_output = "UPDATE entries SET seq = ?, block = ? WHERE session = ? AND seq = ? AND block = ? AND kind = "
    tx.many(under_output + str(TextKind.CALL.value), filed)
    counts = (len(pieces), tx.insert_words(row, session.owner, words), microseconds(stored[-1][0].created_at))
    counted = "entry_count = entry_count + ?, word_count = word_count + ?, last_message_at = ?"
    tx.execute(f"UPDATE sessions SET {counted} WHERE session = ?", (*counts, row))


MessagePlace = tuple[int, str, int]
"""Where a message is: the row and the id of its session, and its position."""


def read_documents(tx: Tx, places: Iterable[MessagePlace]) -> dict[MessagePlace, tuple[Message, list[Document]]]:
    """Those of these messages that are not damaged, with their documents."""
    seqs: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for row, session_id, seq in places:
        seqs[row, session_id].add(seq)
    found = {}
    for (row, session_id), wanted in seqs.items():
        contents = dict(readable_lines(tx, row, "contents", wanted))
        for seq, line in readable_lines(tx, row, "facts", contents):
            message = message_of(session_id, seq, line)
            found[row, session_id, seq] = message, documents(texts_of(contents[seq]), message.blocks)
    return found
