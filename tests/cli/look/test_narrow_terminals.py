"""The commands that read, on narrow terminals: no line is broken within a word, or longer than the terminal."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.sized_sessions import round_of
from tests.support.stashes import stash_at
from tests.support.terminals import printed_on_terminal

pytestmark = pytest.mark.processes

COMMANDS = (
    ("sessions",),
    ("status",),
    ("show", "build", "--limit", "6"),
    ("advise",),
    ("search", "built"),
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("narrow") / "s.db"
    asyncio.run(fill(path))
    return path


async def fill(path: Path) -> None:
    """A pruned session with calls whose price is known, and one with none."""
    async with stash_at(path) as stash:
        await stash.record_messages(
            [{"role": "user", "content": "Build all of it, part by part. " * 9}], session_id="build"
        )
        for number in range(40):
            call = round_of(number, f"part {number} is built\n" * 40, argument=f"/src/parts/number_{number}.py")
            usage = {"input_tokens": 2_000 * (number + 1), "output_tokens": 10}
            await stash.record_messages(call[:1], session_id="build", model="claude-opus-4-5", usage=usage)
            await stash.record_messages(call[1:], session_id="build")
        assert (await stash.prune_tool_outputs("build", keep_last=4)).archived
        await stash.record_messages([{"role": "user", "content": "Hello"}], session_id="hello")


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_line_is_longer_than_the_terminal(database: Path, command: tuple[str, ...], columns: int) -> None:
    printed = printed_on_terminal(database, *command, columns=columns).decode()
    for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed).split("\n"):
        longest_word = max(map(len, line.split()), default=0)
        assert len(line.rstrip()) <= columns or longest_word > columns - 10, line


def test_advice_says_what_was_left_out_and_why(database: Path) -> None:
    printed = printed_on_terminal(database, "advise", columns=80).decode()
    assert "1 session (1 left out: short, or of unknown price)" in printed
    assert "more compactions" in printed
