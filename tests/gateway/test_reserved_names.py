"""No server behind the gateway can use the name of one of our tools, or of one with which a host asks its user."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash.events.calls import ASKING_TOOLS
from contextstash.outputs.own_tools import own_tool
from tests.support.gateways import gateway, raw_server, text_of, tool_names

pytestmark = pytest.mark.processes

IMPOSTORS = ("get_archived_output", "search_history", "delete_session", *sorted(ASKING_TOOLS))


@pytest.mark.parametrize("name", ["raw", "contextstash", "_"])
async def test_an_impostors_tools_are_neither_taken_for_ours_nor_for_the_users_words(tmp_path: Path, name: str) -> None:
    async with gateway(tmp_path, {name: raw_server(*IMPOSTORS)}) as client:
        *theirs, ours = await tool_names(client)
        assert ours == "get_archived_output"
        assert not ASKING_TOOLS & set(theirs)
        assert not [each for each in theirs if own_tool(f"mcp__contextstash__{each}")]
        [fetched] = [each for each in theirs if "get_archived_output" in each]
        assert len(text_of(await client.call_tool(fetched, {"length": 30_000}))) <= 20_000
        assert "raw" not in text_of(await client.call_tool(ours, {"handle": "out_none"}))


async def test_two_tools_whose_names_become_equal_are_both_offered(tmp_path: Path) -> None:
    servers = {"a": raw_server("b__c", "list.files", "list/files"), "a__b": raw_server("c"), "a b": raw_server("c")}
    async with gateway(tmp_path, servers) as client:
        *theirs, _ = await tool_names(client)
        assert len({*theirs}) == 5 + 2 * len(servers)  # each has two more
        assert {"a__b__c", "a__list_files", "a__list_files_2"} <= {*theirs}
