"""The client's own model writes the summary, where the client lets servers ask it; in both protocol generations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent

from tests.support.servers import MODES, SESSION, Mode, answer, record, stdio_command

WRITTEN = "## Progress\n- The parser's bug is in module 3; the public API must never be touched."


async def compacted(
    database: Path, mode: Mode, asked: list[CreateMessageRequestParams] | None, **arguments: Any
) -> dict[str, Any]:
    """What compact_session answers; `asked` collects what the client's model was asked, None for one without."""

    async def sample(context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
        assert asked is not None
        asked.append(params)
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text=WRITTEN), model="the client's", stop_reason="end"
        )

    command = stdio_command(database)
    clean = {name: value for name, value in os.environ.items() if "ANTHROPIC" not in name}
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=clean)
    callback = None if asked is None else sample
    async with Client(parameters, mode=mode, read_timeout_seconds=60, sampling_callback=callback) as client:
        await record(client)
        return await answer(client, "compact_session", session_id=SESSION, **arguments)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("strategy", ["auto", "sampling"])
async def test_the_clients_model_is_asked_once_and_its_summary_is_taken(
    tmp_path: Path, mode: Mode, strategy: str
) -> None:
    asked: list[CreateMessageRequestParams] = []
    result = await compacted(tmp_path / "s.db", mode, asked, strategy=strategy, instructions="Keep line numbers.")
    assert (result["strategy"], result["compacted"]) == ("sampling", True)
    assert result["summary"].startswith(WRITTEN)
    [params] = asked
    assert "Keep line numbers." in (params.system_prompt or "")
    [message] = params.messages
    assert isinstance(message.content, TextContent)
    assert "Fix the parser. Never touch the public API." in message.content.text


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_cannot_be_asked_gets_an_extractive_summary(tmp_path: Path, mode: Mode) -> None:
    assert (await compacted(tmp_path / "e.db", mode, None))["strategy"] == "extractive"


@pytest.mark.parametrize("mode", MODES)
async def test_where_sampling_is_asked_for_and_not_there_the_answer_says_so(tmp_path: Path, mode: Mode) -> None:
    result = await compacted(tmp_path / "n.db", mode, None, strategy="sampling")
    assert result["strategy"] == "extractive"
    assert "offers no sampling" in result["note"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_whose_model_need_not_write_is_not_asked(tmp_path: Path, mode: Mode) -> None:
    asked: list[CreateMessageRequestParams] = []
    await compacted(tmp_path / "h.db", mode, asked, summary="The host's own summary of the work done so far.")
    assert (await compacted(tmp_path / "x.db", mode, asked, strategy="extractive"))["strategy"] == "extractive"
    assert asked == []
