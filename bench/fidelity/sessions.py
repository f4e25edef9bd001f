"""Recorded sessions in one form: Chat Completions messages, one a line, with their tokens and facts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from contextstash.tokenizer import count_with

from .facts import facts_of

Native = dict[str, Any]

SENT_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")
"""What a provider is sent of a recorded message; the rest is about its recording."""

_count = count_with("o200k_base")


@lru_cache(maxsize=60_000)
def tokens_of_text(text: str) -> int:
    """Tokens of a text, by the same counter for every policy."""
    return _count(text) if text else 0


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a session: its position, its role, its JSON as sent, its tokens and its facts. `is_summary` is
    whether the client that recorded it wrote it when it compacted."""

    index: int
    role: str
    native: Native
    tokens: int
    facts: frozenset[str]
    boundary: bool = False
    is_summary: bool = False

    @property
    def text(self) -> str:
        return text_of(self.native)


@dataclass(frozen=True, slots=True)
class Session:
    """A recorded session. `segments` are its parts between the compactions of the client that recorded it."""

    name: str
    messages: tuple[Said, ...]

    @property
    def segments(self) -> list[tuple[Said, ...]]:
        found: list[list[Said]] = []
        for message in self.messages:
            if message.boundary or not found:
                found.append([])
            found[-1].append(message)
        return [tuple(part) for part in found]


def read_sessions(folder: Path, part: str = "all") -> Iterator[Session]:
    """The sessions of a folder in the order of their names. Policies are developed on the part `dev`, every second
    session, and compared on the others, `held`."""
    paths = sorted(folder.glob("*.jsonl"))
    start, step = {"all": (0, 1), "dev": (0, 2), "held": (1, 2)}[part]
    for path in paths[start::step]:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        yield Session(path.stem, tuple(said(place, record) for place, record in enumerate(records)))


def said(index: int, record: Native) -> Said:
    """A recorded message in the form that is measured."""
    native = {key: value for key, value in record.items() if key in SENT_KEYS}
    meta = record.get("meta") or {}
    facts = facts_of(prose_of(native))
    boundary, is_summary = meta.get("compact_boundary") is not None, bool(meta.get("compact_summary"))
    return Said(index, native["role"], native, size_of(native), facts, boundary, is_summary)


def text_of(native: Native) -> str:
    """The text of a message without its calls."""
    content = native.get("content")
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def arguments_of(native: Native) -> list[str]:
    """The arguments of a message's calls, as JSON."""
    return [call["function"]["arguments"] for call in native.get("tool_calls") or ()]


def prose_of(native: Native) -> str:
    """The text of a message and of its calls' arguments, with their line breaks and quotes as they are meant."""
    arguments = (value.replace("\\n", "\n").replace('\\"', '"') for value in arguments_of(native))
    return "\n".join((text_of(native), *arguments)) + ("" if native.get("tool_calls") else "\n")


def size_of(native: Native) -> int:
    """The tokens of a message: its text and its calls' arguments."""
    return tokens_of_text(text_of(native)) + sum(map(tokens_of_text, arguments_of(native)))


def steps_of(messages: Sequence[Said]) -> list[int]:
    """Where an agent's requests end: before each position, a whole step (a message and its tool results) is there."""
    return [
        place + 1 for place in range(len(messages)) if place + 1 == len(messages) or messages[place + 1].role != "tool"
    ]
