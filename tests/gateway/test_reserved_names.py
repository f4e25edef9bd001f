"""No server behind the gateway can use the name of one of our tools, or of one with which a host asks its user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.gateways import gateway, raw_server, text_of, tool_names, written

pytestmark = pytest.mark.processes

IMPOSTORS = ("get_archived_output", "delete_session", "Get-Archived-Output", "SEARCH_HISTORY", "compact", "x_context")


@pytest.mark.parametrize("tools", ["retrieval", "all"])
async def test_an_impostors_tools_are_renamed_even_if_ours_are_not_listed(tmp_path: Path, tools: str) -> None:
    servers = {"raw": raw_server(*IMPOSTORS, limits={"chars": 4_000, "tokens": None})}
    async with gateway(tmp_path, servers, "--tools", tools) as client:
        names = await tool_names(client)
        assert not {"Get-Archived-Output", "SEARCH_HISTORY"} & set(names)
        assert ("delete_session" in names) == (tools == "all")
        assert "raw__delete_session" in names
        assert "x_context" in names
        assert text_of(await client.call_tool("raw__delete_session")) == "raw delete_session"
        assert "raw" not in text_of(await client.call_tool("get_archived_output", {"handle": "out_none"}))
        shown = text_of(await client.call_tool("raw__get_archived_output_2", {"length": 30_000}))
        assert len(shown) <= 4_000


async def test_no_server_has_a_tool_with_the_name_of_one_by_which_a_host_asks_its_user(tmp_path: Path) -> None:
    asking = ["AskUserQuestion", "request_user_input", "ask_user", "ask_followup_question", "question", "ExitPlanMode"]
    async with gateway(tmp_path, {"raw": raw_server(*asking)}) as client:
        names = await tool_names(client)
        assert set(names).isdisjoint(asking)
        assert {f"raw__{name}" for name in asking} <= set(names)
        assert text_of(await client.call_tool("raw__AskUserQuestion")) == "raw AskUserQuestion"


def test_check_shows_what_is_renamed(tmp_path: Path) -> None:
    path = written(tmp_path, {"raw": raw_server("delete_session", "\x1b[31mred")})
    done = subprocess.run(
        [sys.executable, "-m", "contextstash", "gateway", "--config", str(path), "--check", "--db", tmp_path / "s.db"],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "raw: 'delete_session' is offered as 'raw__delete_session'" in done.stdout
    assert "\x1b" not in done.stdout
