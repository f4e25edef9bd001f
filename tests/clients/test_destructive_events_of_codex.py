"""What the real Codex does to its own rollouts costs nothing here: each tool output stays retrievable.

Four events: a fault rewrites the rollout, someone deletes it, the session is resumed, or compacted. Each runs if
`codex` is on the PATH, through our proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.test_destructive_events import PLANTED, check_every_output_is_found
from tests.clients.test_windows import SECONDS, WORK, codex
from tests.support.coding_provider import CodingProvider, coding_provider
from tests.support.command_line import CommandLine
from tests.support.real_clients import program

pytestmark = [pytest.mark.timeout(3 * SECONDS), pytest.mark.processes]


COMMAND = "for i in $(seq 1 40); do echo row-$i-$(date +%N); done; echo planted-$(date +%N)"
"""Each run prints lines of its own."""


@dataclass
class Client:
    """Codex with a home of its own, before this provider."""

    home: Path
    provider: CodingProvider

    def work(self, *more: str, window: str = "") -> None:
        """A turn with a few commands."""
        self.provider.made.clear()
        options = ("--window", window) if window else ()
        codex(self.home, self.provider, *options, more=more or (WORK,))

    def rollouts(self) -> list[Path]:
        return sorted((self.home / ".codex" / "sessions").rglob("rollout-*"), key=lambda path: path.stat().st_mtime)

    def planted(self) -> set[str]:
        """What its model has seen of the commands' own lines."""
        return {line for asked in self.provider.asked for line in PLANTED.findall(asked.text)}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    program("codex")
    with coding_provider(COMMAND, 3) as provider:
        yield Client(tmp_path, provider)


def rewrite(client: Client) -> None:
    """The rollout loses its outputs, and the client goes on with the rest."""
    [path] = client.rollouts()
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "planted-" not in line), "utf-8")
    client.work("resume", "--last", "Go on.")


def delete(client: Client) -> None:
    """The rollout is deleted, and the client begins a new session."""
    [path] = client.rollouts()
    path.unlink()
    client.work()


def resume(client: Client) -> None:
    """The session is resumed."""
    client.work("resume", "--last", "Go on.")


def compact(client: Client) -> None:
    """The client compacts in the next turn."""
    client.provider.bytes_per_token = 1
    client.work("resume", "--last", "Go on.", window="20k")
    assert any(asked.compacts for asked in client.provider.asked)


EVENTS = (rewrite, delete, resume, compact)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_after_it_every_output_of_the_session_is_found_here(client: Client, event: Callable[[Client], None]) -> None:
    check_every_output_is_found(client, CommandLine(client.home), event)
