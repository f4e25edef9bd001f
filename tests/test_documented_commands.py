"""Each command of ours in a block of the documentation runs as it is written there."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, Orchard, write_transcript
from tests.support.gateways import server, written
from tests.support.postgres_server import new_store_address

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

LASTING = {"serve": "mcp/test_serving.py", "ui": "pages/test_pages_over_http.py", "run": "cli/test_client_commands.py"}
"""Commands that do not end on their own, and where they are tested."""

SESSION = "3f2a"
"""The session of the documentation's examples."""


def documented_commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each command line of ours in the page's shell blocks."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```(?:sh|bash|console)?\n(.*?)```", text, flags=re.DOTALL):
        for line in block.splitlines():
            if found := re.match(r"(?:\$ )?(?:\.venv/bin/)?contextstash ([a-z].*)", line):
                yield shlex.split(found[1], comments=True)


def write_rollout(path: Path) -> None:
    """A session of Codex with one message."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Plant a quince."}]}
    records = [
        {"type": "session_meta", "payload": {"id": "rollout", "cwd": "/srv"}},
        {"type": "response_item", "payload": item},
    ]
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@functools.cache
def _address() -> str:
    """The address of a PostgreSQL database."""
    return new_store_address().url


WITH_COMMANDS = [page for page in PAGES if page.name != "command-line.md" and list(documented_commands(page))]


@pytest.fixture
def home(tmp_path: Path) -> Orchard:
    """A user's home: transcripts of Claude Code and Codex, a recorded session with an archived output, servers."""
    orchard = Orchard(tmp_path)
    (tmp_path / "session.jsonl").unlink()
    projects = tmp_path / ".claude" / "projects" / "orchard"
    projects.mkdir(parents=True)
    write_transcript(projects / "session.jsonl", session="5b1f6c1e-0000-4000-8000-000000000002")
    write_rollout(tmp_path / ".codex" / "sessions" / "rollout-1.jsonl")
    (tmp_path / ".mcp.json").write_text("{}")
    written(tmp_path, {"echo": server("echo")})
    assert orchard.run("prune", orchard.session, "--keep-last", "1").returncode == 0
    return orchard


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_a_page_run(page: Path, home: Orchard, monkeypatch: pytest.MonkeyPatch) -> None:
    hit = next(hit for hit in home.json("search", "quince")["hits"] if "handle" in hit)
    database = CommandLine(home.folder).database
    for words in documented_commands(page):
        if words[0] in LASTING:
            assert (ROOT / "tests" / LASTING[words[0]]).exists()
            continue
        here = [re.sub(r"^~", str(home.folder), word) for word in words]
        here = [re.sub(r"\bout_\w+", hit["handle"], word) for word in here]
        here = [home.session if word == SESSION else word for word in here]
        here = [str(database) if word.endswith("/sessions.db") else word for word in here]
        here = [_address() if word.startswith("postgresql://") else word for word in here]
        confirmed = ["--yes"] if words[0] == "install" else []
        done = home.run(*here, *confirmed)
        assert done.returncode == 0, (" ".join(words), done.stdout, done.stderr)
