"""The sections of a hand-off: the user's words, a summary, and the files under edit as they stand.

What the client's own summary of the window holds already is left out, so that the hand-off says what that one lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from contextstash.context.extraction.actions import actions_of
from contextstash.context.extraction.files.files_under_edit import files_of
from contextstash.context.extraction.files.session_files import base_folder, uses_of
from contextstash.context.extraction.files.standing_texts import focus_of, standing_texts
from contextstash.context.extraction.summary.extractive_summary import extract_summary
from contextstash.context.extraction.turns import Turn
from contextstash.context.extraction.user.user_block import user_block
from contextstash.context.text.sanitize import unforged
from contextstash_storage.records import Block

Count = Callable[[str], int]

USER_SHARE = 0.2
"""The share of a hand-off that the user's first request may take, and again that all later ones may. In most
sessions they are shorter, and what they leave goes to the rest."""

MAX_FIRST_REQUEST = 1_600
"""Tokens of the first request, the bound of the design; a longer one keeps its instructions whole."""

FILES_SHARE = 0.3
"""The share that the texts of files may take at first; they get what the summary leaves too. Measured on recorded
compactions at 5,000 tokens: with 0.35 the old lines of 54 % of the next edits are there and 63 % of the needed facts,
with 0.15 31 % and 64 %, without any 3 % and 65 %."""

NAMES_SHARE = 0.6
"""The share of the summary's room that the names in use may take: some two fifths of a hand-off, as the user's words
and the texts of files stand beside the summary. Measured likewise: with 0.45 62 % of the needed facts are there, with
0.6 64 %, and as many of the next edits."""

FILES_HEADING = "## Files in use, as they stand"

MIN_HELD = 20
"""Letters and digits of a request. A shorter one may be part of the client's summary by chance, and would then be left
out."""


@dataclass(frozen=True, slots=True)
class HandedOff:
    """What a hand-off is made from: the session's turns, the pinned rules, the summary that a model wrote for us of
    those up to `written_to`, and the client's own summary of its window; these two may be empty."""

    turns: Sequence[Turn]
    rules: Sequence[str] = ()
    written: str = ""
    written_to: int = -1
    client_summary: str = ""


def handoff_sections(of: HandedOff, max_tokens: int, count: Count) -> str:
    """The sections, in at most `max_tokens`; empty if there is nothing to say."""
    words = _user_words(of, max_tokens, count)
    left = max_tokens - count(words) - 2
    written = unforged(of.written)
    left -= count(written) + 2 if written else 0
    actions = actions_of(of.turns)
    files, focus = files_of(actions), focus_of(of.turns)
    # The folder that the summary's list of files names.
    base = base_folder(use.path for _, use in uses_of(actions))

    def standing(room: int) -> str:
        text = standing_texts(files, room - count(FILES_HEADING) - 1, count, base, focus)
        return f"{FILES_HEADING}\n{unforged(text)}" if text else ""

    texts = standing(int(left * FILES_SHARE))
    turns = [turn for turn in of.turns if turn.seq > of.written_to]
    shown = [_as_turn(text) for text in (words, written, texts, of.client_summary) if text]
    room = left - count(texts) - 2
    summary = (
        extract_summary(turns, max_tokens=room, count=count, shown=shown, words_kept=True, names_share=NAMES_SHARE)
        if turns
        else ""
    )
    texts = standing(left - count(summary) - 2) or texts
    return "\n\n".join(part for part in (words, written, summary, texts) if part)


def _user_words(of: HandedOff, max_tokens: int, count: Count) -> str:
    """The user's requests and rules, without those that stand word for word in the client's summary."""
    held = _letters(of.client_summary)
    turns = [turn if turn.role != "user" else _without_held(turn, held) for turn in of.turns]
    room = int(max_tokens * USER_SHARE)
    span = (of.turns[0].seq, of.turns[-1].seq) if of.turns else (0, 0)
    first = min(MAX_FIRST_REQUEST, room)
    return user_block(turns, span=span, rules=of.rules, first_tokens=first, tokens=room, count=count, client_puts=True)


def _without_held(turn: Turn, held: str) -> Turn:
    """The turn without the texts that the client's summary holds; `held` are the letters and digits of that."""
    if not held:
        return turn
    known = [len(letters := _letters(text)) >= MIN_HELD and letters in held for text in turn.texts]
    texts = ("" if holds else text for text, holds in zip(turn.texts, known, strict=True))
    return replace(turn, texts=tuple(texts)) if any(known) else turn


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _as_turn(text: str) -> Turn:
    """A text that stands beside the summary, so that this does not repeat its names."""
    return Turn(-1, "assistant", (Block(type="text", size=len(text)),), (text,))
