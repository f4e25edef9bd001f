"""The audit of a summary, without a model: which facts that matter it holds, and pointers to those it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from contextstash.context.extraction.audit_facts import CONSTRAINT_SHOWN, AuditedFact, FactKind, facts_that_matter
from contextstash.context.extraction.audit_matching import Holding
from contextstash.context.extraction.summary_format import Section, heading, read_summary, write_item
from contextstash.context.extraction.turns import Turn
from contextstash.context.text.sanitize import one_line

__all__ = ["Audit", "AuditedFact", "FactKind", "append_pointers", "audit_summary", "pointers_of"]


@dataclass(frozen=True, slots=True)
class Audit:
    """What a summary holds of the facts that matter, and what it lacks, most important first."""

    held: tuple[AuditedFact, ...]
    missing: tuple[AuditedFact, ...]


def audit_summary(turns: Sequence[Turn], summary: str, *, previous: str | None = None) -> Audit:
    """Check a summary against the messages that it stands for.

    `turns` are best all of them, those under an earlier summary included, so that nothing is forgotten by degrees;
    if only the newer ones are at hand, `previous` is the earlier summary, whose pointers are checked too, but for
    open items, which the newer messages tell better. At most 80 facts beside these; linear in the length of the turns.
    """
    known = facts_that_matter(turns)
    facts = {(worthy.fact.kind, worthy.fact.text): worthy.fact for worthy in known.facts}
    for fact in pointers_of(previous or ""):
        if fact.kind != "open item" or not turns:
            facts.setdefault((fact.kind, fact.text), fact)
    holding = Holding(summary, known.paths)
    held = {key for key, fact in facts.items() if holding.holds(fact)}
    return Audit(
        tuple(fact for key, fact in facts.items() if key in held),
        tuple(fact for key, fact in facts.items() if key not in held),
    )


def append_pointers(
    summary: str, missing: Sequence[AuditedFact], *, max_tokens: int, count: Callable[[str], int]
) -> tuple[str, int]:
    """The summary, unchanged, with a last section of one line for each missing fact, and how many it lists.

    What is appended takes at most `max_tokens` by `count`; a fact that does not fit is passed over for shorter ones
    after it. A summary that ends in such a section gets the lines added to it.
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
    """What stands between a summary and its first pointer."""
    last = summary.rfind("\n## ")
    if last >= 0 and summary[last + 1 :].split("\n", 1)[0].rstrip() == heading(Section.POINTERS):
        return ""
    return f"\n\n{heading(Section.POINTERS)}" if summary else heading(Section.POINTERS)


def _line(fact: AuditedFact) -> str:
    place = f"message {fact.seq}" + (f", {fact.handle}" if fact.handle else "")
    return f"{fact.kind} ({place}): {one_line(fact.text, CONSTRAINT_SHOWN)}"


_POINTER = re.compile(r"^(path|id|error|open item|constraint) \(message (\d{1,9})(?:, (\S{1,80}))?\): (.+)$")


def pointers_of(summary: str) -> tuple[AuditedFact, ...]:
    """The facts that a summary points to, as `append_pointers` wrote them."""
    return tuple(_facts_of(read_summary(summary).get(Section.POINTERS, ())))


def _facts_of(lines: Iterable[str]) -> Iterable[AuditedFact]:
    kinds: dict[str, FactKind] = {
        "path": "path", "id": "id", "error": "error", "open item": "open item", "constraint": "constraint",
    }  # fmt: skip
    for line in lines:
        match = _POINTER.match(line)
        if match:
            yield AuditedFact(kinds[match.group(1)], match.group(4), int(match.group(2)), match.group(3))
