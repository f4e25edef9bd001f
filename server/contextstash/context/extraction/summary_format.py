"""The format of an extractive summary: its sections, and how items are written and parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum


class Section(StrEnum):
    """The sections in the order in which they are written; the value is the heading."""

    TASK = "Task"
    EARLIER = "Earlier summary"
    DECISIONS = "Decisions and constraints"
    FILES = "Files touched"
    NAMES = "Names in use"
    ERRORS = "Errors"
    FINDINGS = "Findings"
    OPEN = "Open items"
    STATE = "Last state"
    ARCHIVED = "Archived outputs"
    POINTERS = "Missing above, kept in the archive"


_BY_HEADING = {f"## {section.value}": section for section in Section}
_BY_HEADING["## Not told above, kept in the archive"] = Section.POINTERS  # of stored summaries of earlier versions


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


def _key(item: str) -> str:
    return "".join(character for character in item.casefold() if character.isalnum())[:400] or item
