"""Names: the paths and the identifiers in a text, and how much they are in use.

names_of("see src/fines.py: charge_fine()")  ->  {"src/fines.py", "charge_fine"}
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from contextstash_storage.records import HANDLE

AGENT_WEIGHT = 5.0
"""How much more a message of the agent says about a name than one that only shows it. Measured on recorded sessions: 2
to 8 keep about the same; a list of names that the agent itself wrote is the more readable one."""

DECAY = 0.3
"""The weight of a message falls with its age, in messages, to this power: need falls with age as a power law (Anderson
and Schooler, Reflections of the Environment in Memory, 1991). Measured: 0.3 keeps more than 0.5 and 0.8."""

NAME_TOKENS, CHARACTERS_PER_TOKEN = 3, 3.5
"""What a name costs in a list: its separators, and a token for so many characters; measured with o200k_base."""

MAX_SCANNED, MAX_USES, MAX_NAMES = 100_000, 16, 1_500
"""Characters of one text that are searched, newest uses that are known of a name, and names: a list has some three
hundred. They bound the work."""

_TOKEN = re.compile(r"[$)}*%]?[\w./@+~-]{5,}")
"""Words with what stands between the parts of a path. After `$`, `)`, `}`, `*` and `%` it is the end of a pattern, or
of a path that begins with a variable or with the output of a command."""

_PATH = re.compile(r"(?:~|\.{1,2})?/?(?:[\w.@+-]{1,80}/){1,20}[\w.@+-]{0,79}\w")
_NAME = re.compile(r"[A-Za-z_]\w{4,49}")
_BETWEEN = re.compile(r"[./@+~-]+")
_ESCAPE = re.compile(r"(?<!\\)\\+[ntr]")
"""Of a white space, as it stands in JSON within JSON too."""

_DIFF_HEAD = re.compile(r"^diff --git .*|^((?:---|\+\+\+) )[ab]/", re.MULTILINE)
_AT_LINE = re.compile(r"(\.\w{1,10})-\d+-?$")
"""A line number behind a path, as a search prints it."""

_SHAPED = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|[A-Za-z]\d")


def path_key(path: str) -> str:
    """The last two parts of a path, by which it is recognized whether it is written relative or absolute."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..", "~")]
    return "/".join(parts[-2:])


@lru_cache(maxsize=16_384)
def name_key(name: str) -> str:
    """By what a name is recognized: a path by its end."""
    return path_key(name) if "/" in name else name


def names_of(text: str) -> dict[str, None]:
    """The paths and the names in code that a text contains, each once, in order."""
    text = text[:MAX_SCANNED]
    if "\\" in text:
        text = _ESCAPE.sub("\n", text).replace('\\"', '"')
    text = _DIFF_HEAD.sub(r"\1", text) if "--- " in text else text
    return dict.fromkeys(name for token in dict.fromkeys(_TOKEN.findall(text)) for name in _names_in(token))


@lru_cache(maxsize=65_536)
def _names_in(token: str) -> tuple[str, ...]:
    """The names in a word. Cached: the same words come again and again in a session."""
    if token[0] in "$)}*%":
        if token[0] == "$" or "/" in token:
            return ()
        token = token[1:]
    if "/" not in token:
        words = [word for word in _BETWEEN.split(token) if _NAME.fullmatch(word) and _SHAPED.search(word)]
        few_digits = (word for word in words if 3 * sum(map(str.isdigit, word)) <= len(word))
        return tuple(word for word in few_digits if not HANDLE.fullmatch(word))
    found = _PATH.match(token)
    path = _AT_LINE.sub(r"\1", found.group()) if found else ""
    # `read/write` and `net/http` look like paths too; a file has an extension or a place.
    named = path[:1] in ("/", "~", ".") or "." in path.rpartition("/")[2]
    return (path.removeprefix("./"),) if named and len(path_key(path)) >= 6 and not path.startswith("/dev/") else ()


@dataclass(slots=True)
class Name:
    """A name as it was written last, with the newest messages that contain it, of the agent and of others, and the
    file whose text showed it last."""

    form: str
    file: str = ""
    agent: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)

    def weight(self, now: int) -> float:
        """How much it is in use, for what it costs to list it."""
        agent: float = sum((1 + max(0, now - seq)) ** -DECAY for seq in self.agent)
        others: float = sum((1 + max(0, now - seq)) ** -DECAY for seq in self.others)
        return (AGENT_WEIGHT * agent + others) / (NAME_TOKENS + len(self.form) / CHARACTERS_PER_TOKEN)


@dataclass(slots=True)
class NamesInUse:
    """The names of a session, by what they are recognized."""

    known: dict[str, Name] = field(default_factory=dict)

    def add(self, seq: int, names: Iterable[str], *, by_agent: bool) -> None:
        """Count that a message contains the names."""
        for form in names:
            key = name_key(form)
            name = self.known.get(key)
            if name is None:
                name = self.known[key] = Name(form)
            name.form = form
            uses = name.agent if by_agent else name.others
            uses.append(seq)
            if len(uses) > MAX_USES:
                del uses[0]

    def ranked(self, now: int, hidden: Container[str] = ()) -> list[Name]:
        """The names with the highest weight per token first."""
        shown = [name for key, name in self.known.items() if key not in hidden]
        return sorted(shown, key=lambda name: -name.weight(now))

    def place(self, path: str, names: Iterable[str]) -> None:
        """Note that the text of the file shows these names, as far as they are known."""
        for name in (self.known.get(form) for form in names if "/" not in form):
            if name is not None:
                name.file = path

    def shorten(self, now: int) -> None:
        """Forget the names with the lowest weight if they are too many."""
        if len(self.known) > MAX_NAMES:
            kept = sorted(self.known.items(), key=lambda item: -item[1].weight(now))[:MAX_NAMES]
            self.known = dict(kept)
