"""What the real Claude Code does to its own transcripts costs nothing here: each tool output stays retrievable.

Four events: its sweep deletes the transcript, a compaction fails, a sub-agent works, the session is resumed. Each runs
if `claude` is on the PATH, with our hooks installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contextstash_storage.sqlite import open_sqlite
from tests.clients.test_windows import SECONDS
from tests.support.command_line import CommandLine
from tests.support.real_clients import (
    CodingProvider,
    client_environment,
    coding_provider,
    ended,
    in_the_end,
    install_hooks_alone,
    program,
)

pytestmark = [pytest.mark.timeout(3 * SECONDS), pytest.mark.processes]

COMMAND = "seq 1 300; echo planted-$(date +%N)"
"""Each run prints a line of its own."""

PLANTED = re.compile(r"planted-\d+")


@dataclass
class Client:
    """Claude Code with a home of its own, with contextstash's hooks and server, before this provider."""

    home: Path
    provider: CodingProvider
    ours: CommandLine

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Start it without a terminal."""
        environment = client_environment(self.home, self.provider.url)
        command = [program("claude"), "--dangerously-skip-permissions", "--model", "claude-sonnet-4-5", *arguments]
        return ended(command, self.home, environment, SECONDS)

    def work(self, *options: str) -> None:
        """A turn with a few commands."""
        self.provider.made.clear()
        done = self.run("-p", *options, "Do the work.")
        assert done.returncode == 0, done.stdout[-1_000:] + done.stderr[-1_000:]

    def transcripts(self) -> list[Path]:
        """The transcripts of main conversations, the oldest first."""
        found = (self.home / ".claude" / "projects").glob("*/*.jsonl")
        return sorted(found, key=lambda path: path.stat().st_mtime)

    def planted(self) -> set[str]:
        """What its model has seen of the commands' own lines."""
        return {line for asked in self.provider.asked for line in PLANTED.findall(asked.text)}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    ours = CommandLine(tmp_path)
    program("claude")
    assert ours.run("install", "claude-code", "--yes").returncode == 0
    with coding_provider(COMMAND, 3, sub_agent_steps=0) as provider:
        yield Client(tmp_path, provider, ours)


def sweep(client: Client) -> None:
    """The transcript is older than `cleanupPeriodDays`; the client deletes it when it starts again."""
    [path] = client.transcripts()
    settings = client.home / ".claude" / "settings.json"
    written = json.loads(settings.read_text("utf-8")) if settings.exists() else {}
    settings.write_text(json.dumps({**written, "cleanupPeriodDays": 30}), "utf-8")
    old = time.time() - 40 * 86_400
    os.utime(path, (old, old))
    (client.home / ".claude" / ".last-cleanup").unlink(missing_ok=True)
    # It looks for old transcripts five seconds after it has started, once a day.
    client.provider.command = f"sleep 5; {COMMAND}"
    client.work()
    assert not path.exists()


def fail_to_compact(client: Client) -> None:
    """The provider refuses the request for a summary, which only a client without our mod makes."""
    assert client.ours.run("uninstall", "claude-code", "--yes").returncode == 0
    install_hooks_alone(client.home)
    client.provider.fails_to_compact = True
    client.run("-p", "--continue", "/compact")
    assert client.provider.refused
    client.work("--continue")


def start_sub_agent(client: Client) -> None:
    """A sub-agent runs commands of its own."""
    client.provider.sub_agent_steps = 3
    client.work("--continue")
    assert any(asked.is_sub_agent for asked in client.provider.asked)


def resume(client: Client) -> None:
    """The session is resumed by its id, and then as a fork of it."""
    name = client.transcripts()[-1].stem
    client.work("--resume", name)
    client.work("--resume", name, "--fork-session")


EVENTS = (sweep, fail_to_compact, start_sub_agent, resume)


def recorded(database: Path) -> str:
    """All messages of all sessions, as JSON."""

    async def read() -> list[Any]:
        async with await open_sqlite(database) as store:
            sessions = await store.list_sessions(limit=500)
            return [message.body for s in sessions for message in await store.read_messages(s.session_id)]

    return json.dumps(asyncio.run(read()))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_after_it_every_output_of_the_session_is_found_here(client: Client, event: Callable[[Client], None]) -> None:
    client.work()
    before = client.planted()
    assert len(before) >= 2
    assert in_the_end(lambda: before <= set(PLANTED.findall(recorded(client.ours.database))))
    event(client)
    seen = client.planted()
    assert len(seen) > len(before)
    assert in_the_end(lambda: seen <= set(PLANTED.findall(recorded(client.ours.database))))
    for line in sorted(before):
        hits = client.ours.json("search", line)["hits"]
        assert hits, line
        shown = [client.ours.run("show", hit["handle"]).stdout for hit in hits if hit.get("handle")]
        assert any(line in text for text in shown), [(h.get("handle"), h["score"], h["snippet"][-80:]) for h in hits]
