"""The sections of a hand-off: the user's words, a summary, and the files under edit as they stand.

What the client's own summary of the window holds already is left out, so that the hand-off says what that one lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash.events.state import State
from contextstash.events.turns import Said, Turn
from contextstash.handoff.file_pieces import focus_of, known_files, pieces_of_files
from contextstash.handoff.fill import Count
from contextstash.handoff.summary import Beside, summary_of
from contextstash.handoff.user_block import words_text
from contextstash.safety.sanitize import unforged

USER_SHARE = 0.3
"""The share of a hand-off that the user's first request may take, and again that all later ones may. In most
sessions they are shorter, and what they leave goes to the rest. After 41 compactions of 13 recorded sessions a hand-off
of 5,000 tokens held 75 % of the sentences of the first request with 0.2, 96 % with 0.3, 100 % with 0.4, and 72.7, 73.4
and 72.6 % of the facts needed next."""

SUMMARY_SHARE = 0.55
"""The share that a summary may take of what the user's words leave. The texts of files have the rest. Measured on 84
hand-offs of 5,000 tokens: with 0.6 one point less of what the agent edits next is told, with 0.52 as much."""

UNUSED_SHARE = 0.15
"""The share of what the first request leaves of its room that the later ones may take. With 0.25 half as many of the
user's messages were left out of long sessions as with none, and half a point fewer facts were told."""

NAMES_SHARE = 0.28
"""The share of a hand-off that the list of names in use may take. The model that reads it need not search for one, but
a person skips it, and what was found and decided needs room: with 0.24 half a point fewer of the facts needed next are
told, and two points fewer of what the agent does next."""

MAX_NAMES_SHARE = 0.6
"""The share of the summary that it may take: if the user's words leave little room, what is under way needs it more."""

FILES_HEADING = "## Files in use, as they stood at the messages named"


MIN_HELD = 20
"""Letters and digits of a request. A shorter one may be part of the client's summary by chance, and would then be left
out."""


@dataclass(frozen=True, slots=True)
class HandedOff:
    """What a hand-off is made from: the session's state, the newest turns, the pinned rules, the summary that a model
    wrote for us of those up to `written_to`, and the client's own summary of its window; these two may be empty."""

    state: State
    recent: Sequence[Turn]
    rules: Sequence[str] = ()
    written: str = ""
    written_to: int = -1
    client_summary: str = ""


def handoff_sections(of: HandedOff, max_tokens: int, count: Count) -> str:
    """The sections, in at most `max_tokens`; empty if there is nothing to say."""
    words = _user_words(of, max_tokens, count)
    written = unforged(of.written)
    left = max_tokens - sum(count(text) + 2 for text in (words, written) if text)
    files, focus = known_files(of.recent), focus_of(of.recent)

    def pieces(room: int) -> str:
        text = pieces_of_files(files, room - count(FILES_HEADING) - 1, count, focus, folder=of.state.folder)
        return f"{FILES_HEADING}\n{unforged(text)}" if text else ""

    texts = pieces(left - int(left * SUMMARY_SHARE))
    beside = Beside(words=True, texts=[text for text in (words, written, texts, of.client_summary) if text])
    room = left - (count(texts) + 2 if texts else 0)
    # The window begins with the client's own summary. What a session begins with, such as a fork, is nowhere else.
    state = of.state if of.state.earlier and not of.state.earlier.seq else replace(of.state, earlier=None)
    names = min(int(max_tokens * NAMES_SHARE), int(room * MAX_NAMES_SHARE))
    told = summary_of(state, since=of.written_to + 1, beside=beside, max_names=names, max_tokens=room, count=count)
    texts = pieces(left - sum(map(count, told)) - 6) or texts
    # A person skips the list of names: it stands last.
    return "\n\n".join(part for part in (words, written, *told[:1], texts, *told[1:]) if part)


def _user_words(of: HandedOff, max_tokens: int, count: Count) -> str:
    """The user's requests and rules, without those that stand word for word in the client's summary."""
    held, words = _letters_of(of.client_summary), of.state.words.own
    letters = {entry: _letters_of(entry.text) for entry in words.entries}
    kept = tuple(entry for entry, text in letters.items() if len(text) < MIN_HELD or text not in held)
    answered = {**words.answered, **of.state.answered}
    words = replace(words, entries=kept, answered={})
    room = int(max_tokens * USER_SHARE)
    unused = max(0, room - count(words.entries[0].text)) if words.entries else 0
    lines = [f"- (pinned rule) {rule}" for rule in of.rules]
    later = room + int(unused * UNUSED_SHARE)
    text = words_text(words, (0, max(0, of.state.seq)), lines, first_tokens=room, tokens=later, count=count)
    return "\n".join([text, *_answered(kept, answered)])


def _answered(entries: Sequence[Said], answered: Mapping[int, int]) -> list[str]:
    """A line that says which of these the agent has answered, without naming each."""
    last = max((entry.seq for entry in entries if entry.seq in answered), default=None)
    if last is None:
        return []
    others = [f"({each.seq})" for each in entries if each.seq < last and each.seq not in answered and not each.source]
    but = f", but not {', '.join(others)}" if others else ""
    return [f"Answered by the agent: all up to ({last}), that one at {answered[last]}{but}."]


def _letters_of(text: str) -> str:
    """The letters and digits of a text, by which it is found whatever stands between them."""
    return "".join(character for character in text.casefold() if character.isalnum())
