"""Real clients, each in a home of its own, on a provider on loopback."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from contextstash.clients.client import PLUGINS
from contextstash_storage.records import Event
from contextstash_storage.sqlite import open_sqlite

SECONDS = 900
"""A guess: a client needs half a minute, on a machine that does 20 other things a quarter of an hour."""


def program(name: str) -> str:
    """Where a client is; skips the test if it is not installed."""
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def in_the_end(holds: Callable[[], bool]) -> bool:
    """Whether it holds, or does within two minutes: a client does not wait for the hook at its end."""
    until = time.monotonic() + 120
    while not (held := holds()) and time.monotonic() < until:
        time.sleep(0.5)
    return held


def ended(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str], seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """A process in this folder that got nothing to read and has ended, in whatever way."""
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def run_real(
    command: Sequence[str | Path], home: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The client's process in the folder `project` of this home, which has ended well."""
    done = ended(command, home / "project", environment)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done


def run_claude(home: Path, url: str, *arguments: str | Path, needed: tuple[int, ...] = ()) -> str:
    """What Claude Code prints, with a window of 100,000 tokens; skips if it is not there, or older than needed."""
    claude = program("claude")
    version = subprocess.run([claude, "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    if tuple(map(int, version.split("."))) < needed:
        pytest.skip(f"claude {version} is too old for our mod")
    environment = {
        **os.environ,
        "HOME": str(home),
        "CONTEXTSTASH_DB": str(home / "sessions.db"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
    }
    return run_real([claude, "-p", *arguments], home, environment).stdout


def install_hooks_alone(home: Path, *events: str) -> None:
    """Our hooks for these events, or all, in Claude Code, without the mod of our plugin."""
    plugin = json.loads((PLUGINS / "claude_code" / "hooks" / "hooks.json").read_text())["hooks"]
    named = json.dumps({event: plugin[event] for event in events or plugin})
    ours = json.dumps(shlex.join([sys.executable, "-m", "contextstash"]))[1:-1]
    path = home / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    launcher = json.dumps('"${CLAUDE_PLUGIN_ROOT}"/bin/contextstash')[1:-1]
    path.write_text(json.dumps({"hooks": json.loads(named.replace(launcher, ours))}))


async def recorded(home: Path, session_id: str | None = None) -> tuple[list[str], list[str]]:
    """The kinds of the session's events, and the keys of its messages; of the only session if none is named."""
    async with await open_sqlite(home / "sessions.db") as store:
        if session_id is None:
            [session_id] = [each.session_id for each in await store.list_sessions()]
        events = await store.read_log(session_id, Event)
        messages = await store.read_messages(session_id, bodies=False)
        return [event.kind for event in events], [message.key or "" for message in messages]
