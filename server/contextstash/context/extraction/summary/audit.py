"""The audit of a summary, without a model: which relevant facts it contains, and pointers to those it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from contextstash.context.extraction.summary.audit_facts import (
    MAX_CONSTRAINT_LENGTH,
    AuditedFact,
    FactKind,
    relevant_facts,
)
from contextstash.context.extraction.summary.audit_matching import FactIndex
from contextstash.context.extraction.summary_format import Section, heading, read_summary, section_of, write_item
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.sanitize import one_line

__all__ = ["Audit", "AuditedFact", "FactKind", "append_pointers", "audit_summary", "pointers_of"]


@dataclass(frozen=True, slots=True)
class Audit:
    """The relevant facts that a summary contains and those that it lacks, most important first."""

    held: tuple[AuditedFact, ...]
    missing: tuple[AuditedFact, ...]


def audit_summary(turns: Sequence[Turn], summary: str, *, previous: str | None = None) -> Audit:
    """Compare a summary with the messages that it replaces.

    `turns` should be all of these messages, including those under an earlier summary, so that facts are not lost step
    by step. If only the newer ones are available, pass the earlier summary as `previous`: its pointers are checked
    too, except those on which the newer messages are more reliable. Checks at most 80 facts plus these pointers, in
    time linear in the length of the turns.
    """
    known = relevant_facts(turns)
    facts = {(ranked.fact.kind, ranked.fact.text): ranked.fact for ranked in known.facts}
    for fact in pointers_of(previous or ""):
        if not turns or not is_of_the_moment(fact):
            facts.setdefault((fact.kind, fact.text), fact)
    index = FactIndex(summary, known.paths)
    held = {key for key, fact in facts.items() if index.contains(fact)}
    return Audit(
        tuple(fact for key, fact in facts.items() if key in held),
        tuple(fact for key, fact in facts.items() if key not in held),
    )


def is_of_the_moment(fact: AuditedFact) -> bool:
    """Whether newer messages make the fact obsolete: open items, and errors except those of tests, which may still
    fail."""
    return fact.kind == "open item" or (fact.kind == "error" and " failed" not in fact.text)


def append_pointers(
    summary: str, missing: Sequence[AuditedFact], *, max_tokens: int, count: Callable[[str], int]
) -> tuple[str, int]:
    """The unchanged summary with a last section of one line for each missing fact, and the number of these lines.

    The appended text has at most `max_tokens` tokens, counted with `count`. A fact that does not fit is skipped, and
    shorter ones after it are still added. If the summary already ends with such a section, the lines are added to it.
    """
    opening = _opening(summary)
    spent = count(opening)
    lines: list[str] = []
    for fact in missing:
        line = "\n" + write_item(_line(fact))
        cost = count(line) + 1
        if spent + cost <= max_tokens:
            lines.append(line)
            spent += cost
    while lines and count(opening + "".join(lines)) > max_tokens:
        lines.pop()
    return (f"{summary}{opening}{''.join(lines)}", len(lines)) if lines else (summary, 0)


def _opening(summary: str) -> str:
    """The text between a summary and its first new pointer."""
    last = summary.rfind("\n## ")
    if last >= 0 and section_of(summary[last + 1 :].split("\n", 1)[0]) is Section.POINTERS:
        return ""
    return f"\n\n{heading(Section.POINTERS)}" if summary else heading(Section.POINTERS)


def _line(fact: AuditedFact) -> str:
    place = f"message {fact.seq}" + (f", {fact.handle}" if fact.handle else "")
    return f"{fact.kind} ({place}): {one_line(fact.text, MAX_CONSTRAINT_LENGTH)}"


_POINTER = re.compile(r"^(path|id|error|open item|constraint) \(message (\d{1,9})(?:, (\S{1,80}))?\): (.+)$")


def pointers_of(summary: str) -> tuple[AuditedFact, ...]:
    """The facts of the pointers in a summary, as written by `append_pointers`."""
    return tuple(facts_of(read_summary(summary).get(Section.POINTERS, ())))


def facts_of(lines: Iterable[str]) -> Iterable[AuditedFact]:
    """The facts of lines with pointers; other lines have none."""
    kinds: dict[str, FactKind] = {
        "path": "path", "id": "id", "error": "error", "open item": "open item", "constraint": "constraint",
    }  # fmt: skip
    for line in lines:
        match = _POINTER.match(line)
        if match:
            yield AuditedFact(kinds[match.group(1)], match.group(4), int(match.group(2)), match.group(3))
