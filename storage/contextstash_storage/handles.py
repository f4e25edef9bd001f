"""Handles: the short names of tool outputs (`out_…`) and of summaries (`sum_…`), which hash what they name."""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Collection

HASH_BYTES = 10
"""80 bits, 16 base32 characters: two texts with one handle take about 10^12 hashes to find, a text for a given handle
10^24; and a handle that names two texts is refused. (With 40 bits, two were found in 2.9 s.)"""

HANDLE = re.compile(r"(?:out|sum)_[a-z2-7]{16}(?:-\d+)?")
"""A handle; outputs of one session with the same name are numbered."""

MAX_NAMED = 5
"""How many meanings of an ambiguous handle its error names: enough to choose from, in a few lines."""


def handle_of(kind: str, content: str) -> str:
    """The handle of a text, `kind` being `out` or `sum`; the same text always has the same."""
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
    return f"{kind}_{b32encode(digest[:HASH_BYTES]).decode().lower()}"


def ambiguous(handle: str, meanings: Collection[tuple[str, str]]) -> str:
    """What the error says of a handle that names several texts, given (session, handle) of each."""
    named = ", ".join(f"{each} of session '{session_id}'" for session_id, each in list(meanings)[:MAX_NAMED])
    return (
        f"The handle '{handle}' is ambiguous: it can be {named}. Pass session_id, and the handle as it is named here."
    )
