"""Handles: the short names of tool outputs (`out_…`) and of summaries (`sum_…`), which hash what they name."""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Collection
from typing import NamedTuple

HASH_BYTES = 10
"""80 bits, 16 base32 characters. Former versions used 40: two texts with one handle were found in 2.9 s. With 80 bits
that takes about 10^12 hashes, a text for a given handle 10^24; and a handle that names two texts is refused."""

HANDLE = re.compile(r"(?:out|sum)_[a-z2-7]{8}(?:[a-z2-7]{8})?(?:-\d+)?")
"""A handle of this version or a former one; outputs of one session with the same name are numbered."""

_FORMER = re.compile(r"((?:out|sum)_[a-z2-7]{8})((?:-\d+)?)")

MAX_NAMED = 5
"""How many meanings of an ambiguous handle its error names: enough to choose from, in a few lines."""


class FormerHandle(NamedTuple):
    """A handle of a former version, which is the begin of today's handle of the same text: today's is from `first` up
    to `end`, `end` not included, and has this `ending` (its number, if any) after its NAME_LENGTH characters."""

    first: str
    end: str
    ending: str


NAME_LENGTH = len("out_") + HASH_BYTES * 8 // 5


def handle_of(kind: str, content: str) -> str:
    """The handle of a text, `kind` being `out` or `sum`; the same text always has the same."""
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
    return f"{kind}_{b32encode(digest[:HASH_BYTES]).decode().lower()}"


def former_handle(handle: str) -> FormerHandle | None:
    """The parts of a handle of a former version; None if it is not one."""
    found = _FORMER.fullmatch(handle)
    return None if found is None else FormerHandle(found[1] + "2", found[1] + "{", found[2])


def resolved(handle: str, known: Collection[str]) -> str:
    """Which of the `known` handles is meant: this one, or the only one of the same text in today's form."""
    former = former_handle(handle)
    if handle in known or former is None:
        return handle
    same = [each for each in known if former.first <= each < former.end and each[NAME_LENGTH:] == former.ending]
    return same[0] if len(same) == 1 else handle


def ambiguous(handle: str, meanings: Collection[tuple[str, str]]) -> str:
    """What the error says of a handle that names several texts, given (session, handle) of each."""
    named = ", ".join(f"{each} of session '{session_id}'" for session_id, each in list(meanings)[:MAX_NAMED])
    return (
        f"The handle '{handle}' is ambiguous: it can be {named}. Pass session_id, and the handle as it is named here."
    )
