"""A line of an archived output reaches the model, through real clients and frameworks, with its real line breaks.

Each runs if it is there: a framework in one of the interpreters that TEST_CLIENT_PYTHONS names (paths, separated as in
PATH; these frameworks need other versions of our own dependencies) or in this one, a command line client on the PATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.provider import Asked, Json, Said, provider
from tests.support.real_clients import ended, program
from tests.support.servers import SESSION, answer, small_session, stdio_client, stdio_command, text_of
from tests.support.stashes import stash_at

DRIVERS = Path(__file__).parent / "drivers"
PLANTED = 'valve 7 reports "stuck"\n\tpressure 4.2 bar'
SECONDS = 240
"""A guess: a client starts in a few seconds, on a busy machine in a minute."""

FRAMEWORKS = {
    "langchain_adapters": "langchain_mcp_adapters",
    "openai_agents": "agents.mcp",
    "strands_agents": "strands.models.openai",
    "pydantic_ai_agent": "pydantic_ai.mcp",
}
"""The module that each driver needs."""

Calls = Sequence[tuple[str, Json]]
"""The tools that the model calls one by one, by the end of their names, with their arguments."""

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


@cache
def python_with(module: str) -> str:
    """An interpreter that can import a module; skips the test if there is none."""
    for python in [*filter(None, os.environ.get("TEST_CLIENT_PYTHONS", "").split(os.pathsep)), sys.executable]:
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    pytest.skip(f"no interpreter has {module}")


@pytest.fixture
async def calls(tmp_path: Path) -> Calls:
    """The calls of a model that searches for the planted line and reads its output, archived in `tmp_path`."""
    call, result = small_session()[2:4]
    lines = result["content"].splitlines()
    planted = {**result, "content": "\n".join([*lines[:90], PLANTED, *lines[90:]])}
    async with stash_at(tmp_path / "sessions.db") as stash:
        await stash.record_messages([{"role": "user", "content": "Look."}, call, planted], session_id=SESSION)
        pruned = await stash.prune_tool_outputs(SESSION, keep_last=0)
    [output] = pruned.archived
    return [
        ("search_history", {"query": "valve stuck", "session_id": SESSION}),
        ("get_archived_output", {"handle": output.handle}),
    ]


def sent_to_model(calls: Calls, command: list[str], folder: Path, **environment: str) -> list[str]:
    """The results of the two calls as the model was sent them by this client. `URL` stands for the provider's address
    in its command line and environment."""
    results: list[str] = []

    def say(asked: Asked) -> Said:
        """The next call, or the end."""
        offered = list(_offered(asked.body.get("tools") or []))
        if not any(name.endswith(calls[0][0]) for name, _ in offered):
            return Said("done")
        results[:] = map(_text, asked.outputs)
        made = len(results)
        if made >= len(calls):
            return Said("done", number=made)
        wanted, arguments = calls[made]
        name, space = next(each for each in offered if each[0].endswith(wanted))
        return Said("", (name, arguments), number=made, more={"namespace": space} if space else {})

    with provider(say) as url:
        addressed = {name: value.replace("URL", url) for name, value in environment.items()}
        started = [part.replace("URL", url) for part in command]
        done = ended(started, folder, {**os.environ, **addressed}, SECONDS)
    assert len(results) == len(calls), done.stdout[-2_000:] + done.stderr[-2_000:]
    return results


def _offered(tools: list[Json], space: str | None = None) -> Iterator[tuple[str, str | None]]:
    """The names of the tools, and the namespace of each: Codex offers an MCP server's tools inside one."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _offered(tool.get("tools") or [], tool["name"])
        elif name := tool.get("name") or (tool.get("function") or {}).get("name"):
            yield name, space


def _text(content: Any) -> str:
    return "\n".join(each.get("text") or "" for each in content) if isinstance(content, list) else str(content)


def lost(results: list[str]) -> list[str]:
    """The results without the planted lines, as they are or in JSON. A hit's snippet shows them as one line."""
    found, page = results
    in_hit = PLANTED.partition("\n")[0]
    return [
        result
        for result, text in ((found, in_hit), (page, PLANTED))
        if text not in result and json.dumps(text)[1:-1] not in result
    ]


async def test_through_the_sdks_own_client(calls: Calls, tmp_path: Path) -> None:
    async with stdio_client(tmp_path / "sessions.db", tools="agent") as client:
        answers = [await answer(client, tool, **arguments) for tool, arguments in calls]
        texts = [text_of(await client.call_tool(tool, arguments)) for tool, arguments in calls]
    assert lost(texts) == []
    assert PLANTED in texts[1]
    assert lost([json.dumps(structured) for structured in answers]) == []


@pytest.mark.parametrize("driver", FRAMEWORKS)
def test_through_a_framework(calls: Calls, tmp_path: Path, driver: str) -> None:
    command = [python_with(FRAMEWORKS[driver]), str(DRIVERS / f"{driver}.py"), "URL"]
    results = sent_to_model(calls, command + stdio_command(tmp_path / "sessions.db", "agent"), tmp_path)
    assert lost(results) == []


def test_through_claude_code(calls: Calls, tmp_path: Path) -> None:
    command, *arguments = stdio_command(tmp_path / "sessions.db", "agent")
    servers = {"mcpServers": {"contextstash": {"type": "stdio", "command": command, "args": arguments}}}
    (tmp_path / "mcp.json").write_text(json.dumps(servers))
    allowed = ",".join(f"mcp__contextstash__{tool}" for tool, _ in calls)
    asked = [program("claude"), "-p", "Find the valve.", "--mcp-config", str(tmp_path / "mcp.json")]
    results = sent_to_model(
        calls,
        [*asked, "--strict-mcp-config", "--allowedTools", allowed],
        tmp_path,
        HOME=str(tmp_path),
        ANTHROPIC_BASE_URL="URL",
        ANTHROPIC_API_KEY="none",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        # Its first request waits for the server, and offers its tools at once.
        MCP_CONNECTION_NONBLOCKING="0",
        MCP_TIMEOUT=str(1_000 * SECONDS),
        ENABLE_TOOL_SEARCH="false",
    )
    assert lost(results) == []


def test_through_codex(calls: Calls, tmp_path: Path) -> None:
    command, *arguments = stdio_command(tmp_path / "sessions.db", "agent")
    settings: dict[str, Any] = {
        "model_provider": "here",
        "model_providers.here.name": "here",
        "model_providers.here.base_url": "URL/v1",
        "model_providers.here.wire_api": "responses",
        "model_providers.here.env_key": "OPENAI_API_KEY",
        "model_providers.here.supports_websockets": False,
        "mcp_servers.contextstash.command": command,
        "mcp_servers.contextstash.args": arguments,
        "mcp_servers.contextstash.startup_timeout_sec": SECONDS,
        "mcp_servers.contextstash.required": True,
    }
    given = [part for name, value in settings.items() for part in ("-c", f"{name}={json.dumps(value)}")]
    asked = [program("codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *given]
    (tmp_path / ".codex").mkdir()
    home = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / ".codex"), "OPENAI_API_KEY": "none"}
    results = sent_to_model(calls, [*asked, "-m", "gpt-5.4", "Find the valve."], tmp_path, **home)
    assert lost(results) == []
