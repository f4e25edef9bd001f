"""The audit of a summary that a model or the host wrote: what the state of the session has, and the summary lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contextstash.events.names import names_of, path_key
from contextstash.events.replies import is_reply
from contextstash.events.requests import user_rules
from contextstash.events.state import State
from contextstash.handoff.fill import Count, first_of, write_item
from contextstash.safety.imitations import defused
from contextstash.safety.sanitize import one_line

HEADING = "## Missing above, kept in the archive"

MAX_OF_A_KIND = 20
"""Facts of each kind that are compared, the newest: a summary cannot name more."""

MAX_FACT = 400
"""Characters of a fact, as long as the longest sentence that counts as a rule: it must not be cut."""

HELD_SHARE = 0.7
"""The share of a sentence's long words that a summary repeats if it tells the sentence in other words."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a summary of the session should tell, in one line; `seq` is the last message with it."""

    kind: str
    text: str
    seq: int


@dataclass(frozen=True, slots=True)
class Audit:
    """The facts that a summary contains and those that it lacks, most important first."""

    held: tuple[Fact, ...]
    missing: tuple[Fact, ...]


def audit_summary(state: State, summary: str) -> Audit:
    """Compare a summary with the state of the session at its end."""
    facts = [*_facts(state)]
    letters = letters_of(summary)
    words = frozenset(_WORD.findall(summary.casefold()))
    files = {path_key(name).rpartition("/")[2] for name in names_of(summary)} | words
    held = [fact for fact in facts if _holds(fact, letters, words, files)]
    return Audit(tuple(held), tuple(fact for fact in facts if fact not in held))


def append_pointers(summary: str, missing: Sequence[Fact], *, max_tokens: int, count: Count) -> tuple[str, int]:
    """The unchanged summary with a last section of one line for each missing fact that fits in `max_tokens`, and the
    number of these lines."""
    lines = [f"{fact.kind} (message {fact.seq}): {defused(one_line(fact.text, MAX_FACT))}" for fact in missing]
    shown = first_of(lines, max_tokens - count(f"\n\n{HEADING}\n"), count)
    if not shown:
        return summary, 0
    section = "\n".join([HEADING, *map(write_item, shown)])
    return (f"{summary}\n\n{section}" if summary else section), len(shown)


def _facts(state: State) -> Iterator[Fact]:
    """Rules of the user, tasks that are not done, runs that failed, changed files; of each the newest first."""
    rules = [
        Fact("constraint", rule, each.seq) for each in state.asked if not is_reply(each) for rule in user_rules(each)
    ]
    yield from [*{fact.text: fact for fact in rules}.values()][::-1][:MAX_OF_A_KIND]
    plan = state.plan.texts("doing", "todo")
    yield from (Fact("open item", text, state.plan.seq) for text in plan[:MAX_OF_A_KIND])
    failed = sorted(state.failed.values(), key=lambda run: -run.seq)
    yield from (Fact("error", f"{run.line}: {run.told}", run.seq) for run in failed[:MAX_OF_A_KIND])
    changed = [*state.changed.items()][::-1][:MAX_OF_A_KIND]
    yield from (Fact("path", path, file.seq) for path, file in changed if not _IGNORED.search(path))


_IGNORED = re.compile(r"^(?:/private)?/(?:tmp|var/folders|dev|proc)/|^\$|[*{}<>$]|/\.claude/")
_WORD = re.compile(r"[\w.-]*\w")
_LONG = re.compile(r"\w{4,}")


def _holds(fact: Fact, letters: str, words: frozenset[str], files: set[str]) -> bool:
    if fact.kind == "path":
        return fact.text.rpartition("/")[2] in files or fact.text.rpartition("/")[2].casefold() in words
    text = fact.text.split("`")[1] if fact.kind == "error" and fact.text.count("`") > 1 else fact.text
    if (own := letters_of(text)) and own in letters:
        return True
    long = set(_LONG.findall(text.casefold()))
    return bool(long) and sum(letters_of(word) in letters for word in long) >= HELD_SHARE * len(long)


def letters_of(text: str) -> str:
    """The letters and digits of a text, by which it is found whatever stands between them."""
    return "".join(character for character in text.casefold() if character.isalnum())
