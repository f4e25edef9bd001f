"""The user block as tests write and read it: made of turns behind earlier texts, and read again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from contextstash.events.state import State, fold
from contextstash.events.turns import Said, Turn
from contextstash.events.words import UserWords
from contextstash.handoff import user_block as product
from contextstash.handoff.user_block import Shown, shown_by

_ENTRY = re.compile(r"^- \((\d+)\) (?:\[rules of (.+), which the client put here\]\n)?", re.MULTILINE)
_MARKS = ("Answered by the agent: ", "Withdrawn or changed by the user: ", "The user interrupted the work on: ")
_MARK = re.compile(r"\((\d+)\) (?:at|by) \(?(\d+)\)?")


@dataclass(frozen=True)
class Block:
    """What the texts of a block tell."""

    shown: Shown = field(default_factory=Shown)
    words: UserWords = field(default_factory=UserWords)

    @property
    def rules(self) -> tuple[str, ...]:
        return self.shown.rules


def read_block(texts: Sequence[str]) -> Block:
    """What the texts of a block tell, oldest first."""
    entries: list[Said] = []
    marks: list[dict[int, int]] = [{}, {}, {}]
    for whole in texts:
        lines = whole.split("\n")
        while lines and lines[-1].startswith(_MARKS):
            told = lines.pop()
            found = next(mark for mark, label in zip(marks, _MARKS, strict=True) if told.startswith(label))
            found |= {int(seq): int(at) for seq, at in _MARK.findall(told)}
        _, *parts = _ENTRY.split("\n".join(lines))
        for seq, source, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            said = "\n".join(line.removeprefix("  ") for line in text.rstrip("\n").split("\n"))
            entries.append(Said(int(seq), said, source=source or ""))
    answered, withdrawn, interrupted = marks
    return Block(shown_by(texts), UserWords(tuple(entries), answered, withdrawn, interrupted))


def words_of(turns: Sequence[Turn]) -> UserWords:
    return fold(turns).words


def user_block(
    turns: Sequence[Turn],
    *,
    before: Block | None = None,
    span: tuple[int, int],
    rules: Sequence[str] = (),
    first_tokens: int,
    tokens: int,
    count: Callable[[str], int],
    client_puts: bool = False,
) -> str:
    """The next text of the block; with `client_puts` as in a hand-off, without the rules of a project's files."""
    before = before or Block()
    words = fold(turns, State(seq=before.shown.last_seq, words=before.words)).words
    words = words.own if client_puts else words
    limits = {"first_tokens": first_tokens, "tokens": tokens}
    return product.user_block(words, span[1], before.shown, rules=rules, count=count, **limits)
