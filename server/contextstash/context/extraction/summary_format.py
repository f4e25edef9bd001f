"""The format of an extractive summary: its sections, and how items are written and parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum


class Section(StrEnum):
    """The sections in the order in which they are written; the value is the heading."""

    TASK = "Task"
    EARLIER = "Earlier summary"
    DECISIONS = "Decisions and constraints"
    DONE = "What was done"
    FILES = "Files touched"
    TRIED = "Tried and failed"
    ERRORS = "Errors"
    FINDINGS = "Findings"
    OPEN = "Open items"
    STATE = "Last state"
    NAMES = "Names in use"
    ARCHIVED = "Archived outputs"
    POINTERS = "Missing above, kept in the archive"


_BY_HEADING = {f"## {section.value}": section for section in Section}


def heading(section: Section) -> str:
    """The heading line of a section."""
    return f"## {section.value}"


def section_of(line: str) -> Section | None:
    """The section that a heading line begins, None if it is not one of these headings."""
    return _BY_HEADING.get(line.rstrip())


def write_item(item: str) -> str:
    """An item as a bullet; its further lines are indented."""
    first, *rest = item.strip("\n").split("\n")
    return "\n".join([f"- {first}", *(f"  {line}" if line.strip() else "" for line in rest)])


def write_summary(sections: Mapping[Section, Sequence[str]]) -> str:
    """The whole text; empty sections are left out."""
    parts = [
        "\n".join([heading(section), *map(write_item, sections[section])])
        for section in Section
        if sections.get(section)
    ]
    return "\n\n".join(parts)


def with_files(summary: str, texts: str) -> str:
    """The summary with the texts of files behind its section on files; at its end if it has none."""
    start = f"\n{summary}".find(f"\n{heading(Section.FILES)}\n")
    end = summary.find("\n\n## ", start + 1) if start >= 0 else -1
    if end < 0:
        return f"{summary}\n\n{texts}"
    return f"{summary[:end]}\n\n{texts}{summary[end:]}"


Sections = Mapping[Section, Sequence[str]]

CURRENT = (Section.ERRORS, Section.OPEN, Section.STATE)
"""The sections that describe how things stand at the end: of several summaries, only the newest one's are valid."""


def read_summaries(text: str) -> list[dict[Section, list[str]]]:
    """The sections of each of several summaries that are joined in one text, oldest first. A heading that cannot follow
    the one before it, because sections have a fixed order, begins the next summary."""
    order = list(Section)
    parts: list[list[str]] = [[]]
    last = -1
    for line in text.split("\n"):
        begun = section_of(line)
        place = order.index(begun) if begun else -1 if line.startswith("#") else last
        if place < last or (begun and place == last):
            parts.append([])
        parts[-1].append(line)
        last = place
    return [sections for part in parts if (sections := read_summary("\n".join(part)))]


def joined(summaries: Sequence[Sections]) -> dict[Section, list[str]]:
    """The sections of several summaries, oldest first, as one: the newest evidence is right. How things stand is taken
    from the newest summary alone, except that a plan is valid until there is another; pointers are ordered by
    importance, so those of newer summaries come first."""
    found: dict[Section, list[str]] = {}
    for sections in summaries:
        stands = _standing_plan(found, sections)
        for section in CURRENT:
            found.pop(section, None)
        for section, items in sections.items():
            older = found.get(section, ())
            if section in CURRENT:
                found[section] = list(items)
            elif section is Section.TASK:
                found[section] = in_place(older, items)
            elif section is Section.POINTERS:
                found[section] = in_place(items, older)
            else:
                found[section] = merged(older, items)
        if stands:
            found[Section.OPEN] = [*stands, *found.get(Section.OPEN, ())]
    return {section: items for section, items in found.items() if items}


def _standing_plan(older: Sections, newer: Sections) -> list[str]:
    """The older plan if the newer summary contains neither a plan nor a model's account of the session."""
    if Section.EARLIER in newer or any(map(is_plan_line, newer.get(Section.OPEN, ()))):
        return []
    return list(filter(is_plan_line, older.get(Section.OPEN, ())))


def is_plan_line(item: str) -> bool:
    """Whether an open item is an entry of the plan, which has a check box."""
    return item[:1] == "[" and item[2:4] == "] " and item[1] in " ~x"


def read_summary(text: str) -> dict[Section, list[str]]:
    """The items of a summary by section. Text outside these sections, such as a summary that a model wrote, becomes one
    item of `Section.EARLIER`."""
    found: dict[Section, list[str]] = {}
    loose: list[str] = []
    section: Section | None = None
    blank = 0
    for line in text.split("\n"):
        if begun := section_of(line):
            section, blank = begun, 0
            found.setdefault(section, [])
        elif line.startswith("#") or section is None:
            section = None
            loose.append(line)
        elif not line.strip():
            blank += 1
        else:
            _add(found[section], line, blank)
            blank = 0
    free = "\n".join(loose).strip()
    if free:
        found.setdefault(Section.EARLIER, []).insert(0, free)
    return {section: items for section, items in found.items() if items}


def _add(items: list[str], line: str, blank: int) -> None:
    if line.startswith("  ") and items:
        items[-1] += "\n" * (blank + 1) + line[2:]
    else:
        items.append(line.removeprefix("- ").strip())


def merged(older: Sequence[str], newer: Sequence[str]) -> list[str]:
    """Both lists, each item once; an item in both has its place in the newer list."""
    kept = {_key(item): item for item in older}
    for item in newer:
        kept.pop(_key(item), None)
        kept[_key(item)] = item
    return list(kept.values())


def in_place(first: Sequence[str], further: Sequence[str]) -> list[str]:
    """Both lists, each item once; an item in both keeps its place in the first list."""
    kept: dict[str, str] = {}
    for item in (*first, *further):
        kept.setdefault(_key(item), item)
    return list(kept.values())


def _key(item: str) -> str:
    return "".join(character for character in item.casefold() if character.isalnum())[:400] or item
