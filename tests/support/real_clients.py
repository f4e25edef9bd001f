"""Real clients, each in a home of its own, on a provider whose model runs one shell command after the other.

It counts a request by its bytes and reports that as usage, so that a client compacts when its own threshold is reached,
and it writes the summary that the client then asks for.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.client import PLUGINS
from contextstash_storage.records import Event
from contextstash_storage.sqlite import open_sqlite
from tests.support.provider import Asked as AnyRequest
from tests.support.provider import Json, Said, provider
from tests.support.strict_provider import reasoning_after

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


def client_environment(home: Path, url: str = "", **own: str) -> dict[str, str]:
    """The environment of clients in this home, whose provider is at this address: nothing of ours or theirs is
    inherited."""
    theirs = (
        "ANTHROPIC_",
        "OPENAI_",
        "CLAUDE",
        "CONTEXTSTASH_",
        "CODEX_",
        "GEMINI",
        "GOOGLE",
        "XDG_",
        "OPENCODE",
        "PI_",
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    addressed = {"ANTHROPIC_BASE_URL": url} if url else {}
    return {
        **kept,
        "HOME": str(home),
        "CODEX_HOME": str(home / ".codex"),
        "CONTEXTSTASH_DB": str(home / "sessions.db"),
        "IS_SANDBOX": "1",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **addressed,
        **own,
    }


def ended(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str], seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """A process in this folder that got nothing to read and has ended, in whatever way."""
    return subprocess.run(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
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
    environment = client_environment(home, url, CLAUDE_CODE_AUTO_COMPACT_WINDOW="100000")
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


BYTES_PER_TOKEN = 4
SUMMARY = "<summary>The model's summary: the work goes on.</summary>"
SUB_AGENT = "You are the helper."
"""A prompt with these words is a sub-agent's."""

_COMPACTION = (
    "your task is to create a detailed summary",
    "context checkpoint compaction",
    "create a new anchored summary",
    "create a structured context checkpoint summary",
    "create a concise checkpoint of the user's request",
)
_SHELLS = {"Bash": "command", "bash": "command", "exec_command": "cmd", "shell_command": "command", "exec": "cmd"}
"""The clients' tools that run a shell command, and their arguments."""


@dataclass(frozen=True)
class Asked(AnyRequest):
    """A request that the provider got. `compacts` is true if it asks for the client's own summary."""

    tokens: int
    compacts: bool

    @property
    def is_sub_agent(self) -> bool:
        return SUB_AGENT in self.text and f'"prompt": "{SUB_AGENT}' not in self.text.replace('\\"', '"')


@dataclass
class CodingProvider:
    """Its address and the requests of the main agent and its sub-agents; `usages` are the model and the tokens of
    each request that is billed, also of those without tools. The main agent runs `command` `steps` times, a sub-
    agent `sub_agent_steps` times; the main agent starts one first if there are any, and makes its `first_calls`
    before all others. If it `thinks`, each call comes after reasoning; `thoughts` counts what came back of it."""

    command: str
    steps: int
    sub_agent_steps: int = 0
    bytes_per_token: float = BYTES_PER_TOKEN
    thinks: bool = False
    thoughts: int = 0
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    usages: list[tuple[str, int]] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    first_calls: tuple[tuple[str, Json], ...] = ()

    def turns(self) -> list[Asked]:
        """The main agent's requests, without those for a summary."""
        return [each for each in self.asked if not each.compacts and not each.is_sub_agent]

    def say(self, got: AnyRequest) -> Said:
        """The model's next reply."""
        compacts = _asks_for_summary((got.items or [{}])[-1])
        tokens = int(len(got.data) / self.bytes_per_token)
        asked = Asked(got.method, got.target, got.headers, got.data, tokens, compacts)
        call, body = self._next_call(asked), asked.body
        self.usages.append((body["model"], tokens))
        if body.get("tools") or compacts or "additional_tools" in asked.text:  # an item of the input for GPT-6
            self.asked.append(asked)
        number, thought, item = len(self.asked), None, None
        if call is not None and self.thinks:
            self.thoughts += asked.text.count('"signature"') + asked.text.count('"encrypted_content"')
            thought = reasoning_after(asked.format, body, number)
        if compacts and "compaction_trigger" in asked.text:  # OpenAI's own compaction, whose item only it can read
            item = {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": "c2VhbGVk"}
        if call is not None and call[0] == "exec":  # a script, which Codex offers to GPT-6 in place of a shell
            script = f"const done = await tools.exec_command({json.dumps(call[1])});\ntext(done.output);"
            item = {"type": "custom_tool_call", "id": f"ctc_{number}", "call_id": f"call_{number:06}"}
            item |= {"name": "exec", "input": script, "status": "completed"}
        text = "" if call else SUMMARY if compacts else "All done."
        return Said(text, call, thought, number, tokens, item=item)

    def _next_call(self, asked: Asked) -> tuple[str, Json] | None:
        """The call of the model's next reply, None if it is done."""
        offered = list(asked.body.get("tools") or [])
        for item in asked.items:
            if item.get("type") == "additional_tools":
                offered += [tool for group in item["tools"] for tool in group.get("tools", [group])]
        tools = {tool.get("name"): tool for tool in offered}
        shell = next((name for name in _SHELLS if name in tools), None)
        if shell is None or asked.compacts:
            return None
        who = "sub-agent" if asked.is_sub_agent else "main"
        starter = next((name for name in ("Agent", "Task") if name in tools), None)
        made = self.made[who] = self.made.get(who, 0) + 1
        if who == "main" and made <= len(self.first_calls):
            return self.first_calls[made - 1]
        if who == "main" and self.sub_agent_steps and starter and made == 1:
            task = {"description": "help", "prompt": f"{SUB_AGENT} Run it.", "subagent_type": "general-purpose"}
            return starter, task
        if made > (self.sub_agent_steps if asked.is_sub_agent else self.steps):
            return None
        return shell, {_SHELLS[shell]: f"{self.command} # {who} {made}"}


@contextmanager
def coding_provider(command: str, steps: int, sub_agent_steps: int = 0, **how: Any) -> Iterator[CodingProvider]:
    """A provider on a free port of this machine."""
    running = CodingProvider(command, steps, sub_agent_steps, **how)
    with provider(running.say, running.others) as running.url:
        yield running


def _asks_for_summary(last: Json) -> bool:
    """Whether the last message asks for the client's own summary. A hand-off, which Codex sends as a message of the
    developer and Claude Code in a block before, may quote such words."""
    content = last.get("content")
    said = json.dumps(content[-1] if isinstance(content, list) and content else content).lower()
    asked = last.get("role") == "user" and any(words in said for words in _COMPACTION)
    return asked or last.get("type") == "compaction_trigger"
