"""Names: the paths and the identifiers in a text, and how much they are in use.

names_of("see src/fines.py: charge_fine()")  ->  {"src/fines.py", "charge_fine"}
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from contextstash.events.shell import definitions

AGENT_WEIGHT = 5.0
"""How much more a message of the agent says about a name than one that only shows it. Measured on recorded sessions: 2
to 8 keep about the same; a list of names that the agent itself wrote is the more readable one."""

DECAY = 0.3
"""The weight of a message falls with its age, in messages, to this power: need falls with age as a power law (Anderson
and Schooler, Reflections of the Environment in Memory, 1991). Measured: 0.3 keeps more than 0.5 and 0.8."""

NUMBERED_SHARE = 0.3
"""The share of its weight that a word with one digit, such as `result2`, counts: a variable of a short script."""

NAME_TOKENS, CHARACTERS_PER_TOKEN = 3, 3.5
"""What a name costs in a list: its separators, and a token for so many characters; measured with o200k_base."""

MAX_SCANNED = 100_000
"""Characters of one text that are searched; it bounds the work on a huge output."""

MAX_USES = 16
"""Newest uses that are known of a name. Older ones weigh little."""

MAX_NAMES = 1_000
"""Names that are known. A list has some two hundred."""

MAX_CHANGED = 4
"""Names of one change."""

_PATH = re.compile(r"(?<![\w/.)}*$-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,80}/){1,20}[\w.@+-]{0,79}\w")
"""Not the end of a pattern, or of a path that begins with a variable or with the output of a command."""

_NAME = re.compile(r"(?<![\w$])[A-Za-z_]\w{4,49}(?![\w$])")
_ESCAPE = re.compile(r"\\+[ntr]")
"""Of a white space, as it stands in JSON within JSON too."""

_DIFF_HEAD = re.compile(r"^(?:diff --git|---|\+\+\+) .+$", re.MULTILINE)
_DIFF_SIDE = re.compile(r" [ab]/")
_NUMBERED = re.compile(r"[A-Za-z][a-z]+\d")
_AT_LINE = re.compile(r"(\.\w{1,10})[:-]\d+(?:[:-]\d*)?$")
"""A line number behind a path, as a search prints it."""

_HEXADECIMAL = re.compile(r"[0-9a-f]{6,40}|[0-9A-F]{6,40}", re.ASCII)
"""A colour or a hash looks like a name with digits."""

_NO_FILE = re.compile(r"/(?:dev|proc)/|\.{0,2}/?[\w-]+$|.*\w\.{2,3}\w")
"""A path that names no file of the work: a device, a lone folder, or a range of Git."""

_SHAPED = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|[A-Za-z]\d")


def path_key(path: str) -> str:
    """The last two parts of a path, by which it is recognized whether it is written relative or absolute."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..", "~")]
    return "/".join(parts[-2:])


def name_key(name: str) -> str:
    """By what a name is recognized: a path by its end."""
    return path_key(name) if "/" in name else name


def names_of(text: str) -> dict[str, None]:
    """The paths and the names in code that a text contains, each once, in order."""
    text = _ESCAPE.sub("\n", text[:MAX_SCANNED]).replace('\\"', '"')
    text = _DIFF_HEAD.sub(lambda line: _DIFF_SIDE.sub(" ", line.group()), text)
    found: dict[str, None] = {}
    for path in (_AT_LINE.sub(r"\1", each) for each in _PATH.findall(text)):
        # `read/write` and `net/http` look like paths too; a file has an extension or a place.
        if (
            len(path_key(path)) >= 6
            and not _NO_FILE.match(path)
            and (path[0] in "/~." or "." in path.rsplit("/", 1)[-1])
        ):
            found[path.removeprefix("./")] = None
    for name in _NAME.findall(_PATH.sub(" ", text)):
        if _SHAPED.search(name) and 3 * sum(map(str.isdigit, name)) <= len(name) and not _HEXADECIMAL.fullmatch(name):
            found[name] = None
    return found


def changed_names(old: str, new: str) -> tuple[str, ...]:
    """The names that a change affects: definitions in the new text first, then names that it adds, then one that it
    removes."""
    defined = definitions(new, MAX_CHANGED)
    if len(defined) == MAX_CHANGED:
        return defined
    before, after = names_of(old), names_of(new)
    added = [name for name in after if name not in before and "/" not in name]
    removed = [name for name in before if name not in after and "/" not in name]
    return tuple(dict.fromkeys([*defined, *added[:MAX_CHANGED], *removed[:1]]))[:MAX_CHANGED]


@dataclass
class NamesInUse:
    """The names of a session with the newest messages that contain them: of the agent, and of others."""

    forms: dict[str, str] = field(default_factory=dict)
    agents: dict[str, list[int]] = field(default_factory=dict)
    others: dict[str, list[int]] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)

    def add(self, seq: int, names: Iterable[str], *, by_agent: bool) -> None:
        """Count that a message contains the names."""
        uses = self.agents if by_agent else self.others
        for name in names:
            key = name_key(name)
            self.forms[key] = name
            places = uses.setdefault(key, [])
            places.append(seq)
            if len(places) > MAX_USES:
                del places[0]
            if by_agent:
                self.own.add(key)

    def ranked(self, now: int, hidden: Container[str] = ()) -> list[str]:
        """The names of the agent's work with the highest weight per token, as they were written last."""
        keys = [key for key in self.forms if key in self.own and key not in hidden]
        keys.sort(key=lambda key: -self._weight(key, now) / (NAME_TOKENS + len(self.forms[key]) / CHARACTERS_PER_TOKEN))
        return [self.forms[key] for key in keys]

    def shorten(self, now: int) -> None:
        """Forget the names with the lowest weight if they are too many."""
        if len(self.forms) > MAX_NAMES:
            kept = sorted(self.forms, key=lambda key: -self._weight(key, now))[:MAX_NAMES]
            self.forms = {key: self.forms[key] for key in kept}
            self.agents = {key: self.agents[key] for key in kept if key in self.agents}
            self.others = {key: self.others[key] for key in kept if key in self.others}
            self.own &= set(kept)

    def _weight(self, key: str, now: int) -> float:
        agents: float = sum((1 + max(0, now - seq)) ** -DECAY for seq in self.agents.get(key, ()))
        others: float = sum((1 + max(0, now - seq)) ** -DECAY for seq in self.others.get(key, ()))
        return (AGENT_WEIGHT * agents + others) * (NUMBERED_SHARE if _NUMBERED.fullmatch(key) else 1.0)
