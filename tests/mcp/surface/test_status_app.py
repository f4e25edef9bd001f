"""`context_status`: a page for clients that show apps, and a text for all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp.types import TextContent, TextResourceContents

from contextstash.mcp.answers import TIMELINE
from contextstash.mcp.server import URI
from tests.support.servers import SESSION, Mode, answer, record, stdio_client

pytestmark = pytest.mark.processes


async def test_the_tool_names_a_page_that_can_be_read(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode, tools="agent") as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "context_status"]
        assert tool.meta == {"ui": {"resourceUri": URI}}
        [page] = (await client.read_resource(URI)).contents
        assert isinstance(page, TextResourceContents)
        assert page.mime_type == "text/html;profile=mcp-app"
        assert "http://" not in page.text
        assert "https://" not in page.text


async def test_its_text_contains_what_the_page_shows(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode) as client:
        await record(client)
        before = await answer(client, "estimate_context", session_id=SESSION)
        pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
        result = await client.call_tool("context_status", {"session_id": SESSION})
        status = result.structured_content
        assert status
        assert "timeline" not in status
        timeline = (result.meta or {})[TIMELINE]
        assert timeline["points"][-1]["parts"] == status["estimate"]["breakdown"]
        assert [change["kind"] for change in timeline["changes"]] == ["prune"]
        assert isinstance(result.content[0], TextContent)
        text = result.content[0].text
        assert status["outputs_archived"] == len(pruned["archived"])
        assert status["changes"][0]["tokens_before"] == before["tokens"]
        assert f"{status['estimate']['tokens']:,} of {status['estimate']['usable']:,} usable tokens" in text
        assert "tool results" in text
        assert f"Last change: prune, {pruned['tokens_before']:,} → {pruned['tokens_after']:,} tokens" in text
