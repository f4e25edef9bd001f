"""A generated agent session of any length, the same at every run: about 850 characters a message."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

Native = dict[str, Any]

TURNS_PER_REQUEST = 12
"""Tool calls between two requests of the user; a coding agent makes 5 to 30."""

LONG_OUTPUT_EVERY = 8
"""Every eighth output is about ten times as long as the others, as when a whole file is read."""

SEED = 15

_SYLLABLES = ("ba", "co", "di", "fu", "ge", "lo", "mi", "nor", "pa", "ques", "ri", "sta", "tem", "ul", "ver", "xo")
_LINES = (
    "{number:5d}\tdef {a}_{b}({c}: int) -> str:",
    "{number:5d}\t    return self.{a}.{b}({c}, timeout={number})",
    "src/{a}/{b}.py:{number}: error: {c} is not {a}",
    "INFO {a} {b} finished in {number} ms, {c} retries left",
    '{{"{a}": {number}, "{b}": "{c}"}}',
)


@lru_cache(maxsize=1)
def words() -> tuple[str, ...]:
    """About 4,000 words, as a repository of middle size has different identifiers."""
    source = random.Random(SEED)
    return tuple(sorted({"".join(source.choices(_SYLLABLES, k=source.randint(2, 4))) for _ in range(4_000)}))


def messages(count: int) -> Iterator[Native]:
    """The first `count` messages of the session, as Chat Completions."""
    source = random.Random(SEED)
    made = turn = 0
    while made < count:
        batch = _turn(source, turn)
        yield from batch[: count - made]
        made += len(batch)
        turn += 1


def further(number: int) -> list[Native]:
    """A call with its result, as comes at the end of any session."""
    return _turn(random.Random(SEED + number), 1_000_000_000 + 1 + number)[-2:]


def queries(count: int) -> list[str]:
    """Searches as agents make them: one to three words, some of which are in many outputs."""
    source = random.Random(SEED + 1)
    return [" ".join(source.choices(words(), k=source.randint(1, 3))) for _ in range(count)]


def _turn(source: random.Random, turn: int) -> list[Native]:
    path = f"src/{source.choice(words())}/{source.choice(words())}_{turn % 5_000}.py"
    call_id = f"call_{turn:012d}"
    function = {"name": "read_file", "arguments": json.dumps({"path": path})}
    call = {
        "role": "assistant",
        "content": f"I look at {source.choice(words())} in {path} next.",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    lines = 100 if turn % LONG_OUTPUT_EVERY == 0 else 12
    result = {"role": "tool", "tool_call_id": call_id, "content": _text(source, lines)}
    if turn % TURNS_PER_REQUEST:
        return [call, result]
    asked = f"Please fix {source.choice(words())} {source.choice(words())} so that {path} passes its tests."
    return [{"role": "user", "content": asked}, call, result]


def _text(source: random.Random, lines: int) -> str:
    known = words()
    return "\n".join(
        source.choice(_LINES).format(
            number=source.randint(1, 9_999), a=source.choice(known), b=source.choice(known), c=source.choice(known)
        )
        for _ in range(lines)
    )
