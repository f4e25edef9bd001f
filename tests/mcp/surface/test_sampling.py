"""The client's own model writes the summary if the client supports sampling; in both protocol generations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent

from tests.support.servers import MODES, SESSION, Mode, answer, record, stdio_command

pytestmark = pytest.mark.processes

WRITTEN = "## Progress\n- The parser's bug is in module 3; the public API must never be touched."


async def compacted(
    database: Path, mode: Mode, requests: list[CreateMessageRequestParams] | None, **arguments: Any
) -> dict[str, Any]:
    """The result of compact_session; `requests` collects the sampling requests, None for a client without sampling."""

    async def sample(context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
        assert requests is not None
        requests.append(params)
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text=WRITTEN), model="the client's", stop_reason="end"
        )

    command = stdio_command(database)
    clean = {name: value for name, value in os.environ.items() if "ANTHROPIC" not in name}
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=clean)
    callback = None if requests is None else sample
    async with Client(parameters, mode=mode, read_timeout_seconds=60, sampling_callback=callback) as client:
        await record(client)
        return await answer(client, "compact_session", session_id=SESSION, **arguments)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("strategy", ["auto", "sampling"])
async def test_the_clients_model_is_asked_once_and_its_summary_is_used(
    tmp_path: Path, mode: Mode, strategy: str
) -> None:
    requests: list[CreateMessageRequestParams] = []
    result = await compacted(tmp_path / "s.db", mode, requests, strategy=strategy, instructions="Keep line numbers.")
    assert (result["strategy"], result["compacted"]) == ("sampling", True)
    assert result["summary"].startswith(WRITTEN)
    [params] = requests
    assert "Keep line numbers." in (params.system_prompt or "")
    [message] = params.messages
    assert isinstance(message.content, TextContent)
    assert "Fix the parser. Never touch the public API." in message.content.text


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_without_sampling_gets_an_extractive_summary(tmp_path: Path, mode: Mode) -> None:
    assert (await compacted(tmp_path / "e.db", mode, None))["strategy"] == "extractive"


@pytest.mark.parametrize("mode", MODES)
async def test_the_result_notes_that_requested_sampling_is_unavailable(tmp_path: Path, mode: Mode) -> None:
    result = await compacted(tmp_path / "n.db", mode, None, strategy="sampling")
    assert result["strategy"] == "extractive"
    assert "does not support sampling" in result["note"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_clients_model_is_not_asked_if_it_need_not_write(tmp_path: Path, mode: Mode) -> None:
    requests: list[CreateMessageRequestParams] = []
    await compacted(tmp_path / "h.db", mode, requests, summary="The host's own summary of the work done so far.")
    assert (await compacted(tmp_path / "x.db", mode, requests, strategy="extractive"))["strategy"] == "extractive"
    assert requests == []
