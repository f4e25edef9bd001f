"""No server behind the gateway can use the name of one of our tools, prompts or resources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server import Server
from mcp.types import Prompt, Resource, ResourceTemplate, Tool

from contextstash.gateway.config import ServerEntry, StdioServer
from contextstash.gateway.names import OWN_PROMPTS, Lists, is_own_prompt, is_own_uri, is_reserved_tool
from contextstash.gateway.upstream import Offer, Upstream
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.server import build_server
from contextstash.mcp.surface.prompts import PROMPTS
from contextstash.outputs.own_tools import OWN_TOOLS, is_own_retrieval
from contextstash.stash import Stash
from tests.support.gateways import gateway, raw_server, text_of, tool_names, written

pytestmark = pytest.mark.processes

IMPOSTORS = ("get_archived_output", "delete_session", "Get-Archived-Output", "SEARCH_HISTORY", "compact", "x_context")


async def no_stash() -> Stash:
    raise AssertionError


async def test_all_our_tools_and_prompts_are_reserved() -> None:
    listed = await build_server(LazyStash(no_stash), "all").list_tools()
    assert {tool.name for tool in listed} == OWN_TOOLS
    assert set(PROMPTS) == set(OWN_PROMPTS)


@pytest.mark.parametrize(
    "name",
    [
        "delete_session",
        "deleteSession",
        "DELETE-SESSION",
        "delete.session",
        "_delete__session_",
        "delete\u200b_session",
        "other_get_archived_output",
    ],
)
def test_a_name_that_could_be_mistaken_for_one_of_ours_is_reserved(name: str) -> None:
    assert is_reserved_tool(name)


@pytest.mark.parametrize("name", ["read_file", "delete_sessions", "session", "get_context_7", "search", "d"])
def test_an_ordinary_name_is_not_reserved(name: str) -> None:
    assert not is_reserved_tool(name)


@pytest.mark.parametrize(
    ("uri", "ours"),
    [
        ("context://archive/out_1", True),
        ("CONTEXT://sessions", True),
        ("context://{a}/{b}", True),
        ("{+any}", True),
        ("con{+rest}", True),
        ("contexts://x", False),
        ("file://{path}", False),
        ("context", False),
    ],
)
def test_a_uri_is_reserved_if_it_has_or_can_have_our_scheme(uri: str, ours: bool) -> None:
    assert is_own_uri(uri) is ours


NAMES = st.lists(st.sampled_from([*sorted(OWN_TOOLS), "Get_Context", "getSummary", "read", "compact"]), max_size=6)


@given(NAMES, NAMES, st.sampled_from(["get", "contextstash", "c", "search"]))
def test_no_other_server_is_offered_a_reserved_name(names: list[str], more: list[str], server: str) -> None:
    schema: dict[str, Any] = {"type": "object"}
    uris = ["context://sessions", "{+any}", "context://archive/{handle}"]
    offer = Offer(
        tools=tuple(Tool(name=name, input_schema=schema) for name in names),
        prompts=tuple(Prompt(name=name) for name in more),
        resources=tuple(Resource(uri=uri, name="x") for uri in uris[:1]),
        templates=tuple(ResourceTemplate(uri_template=uri, name="x") for uri in uris[1:]),
    )
    own = Offer(tools=tuple(Tool(name=name, input_schema=schema) for name in sorted(OWN_TOOLS)[:3]))
    found = Lists.of({server: upstream(server, offer), "own": upstream("own", own, is_own=True)})
    of_server = [name for name, each in found.tools.items() if each.upstream.name == server]
    assert not [name for name in of_server if is_reserved_tool(name)]
    assert not [
        name for name in found.tools if name not in OWN_TOOLS and is_own_retrieval(f"mcp__contextstash__{name}")
    ]
    assert not [name for name in found.prompts if is_own_prompt(name)]
    assert not [uri for uri in (*found.resources, *found.templates) if is_own_uri(uri)]
    assert {each.name for each in found.tools.values() if each.upstream.name == server} == set(names)
    assert found.resource("context://archive/out_1") is None


def upstream(name: str, offer: Offer, *, is_own: bool = False) -> Upstream:
    """A server that was connected and listed this."""

    async def changed() -> None:
        raise AssertionError

    found = Upstream(ServerEntry(name, StdioServer("x")), changed, Server("own") if is_own else None)
    found.offer = offer
    return found


@pytest.mark.parametrize("tools", ["retrieval", "agent"])
async def test_an_impostors_tools_are_renamed_even_if_ours_are_not_listed(tmp_path: Path, tools: str) -> None:
    servers = {"raw": raw_server(*IMPOSTORS, limits={"chars": 4_000, "tokens": None})}
    async with gateway(tmp_path, servers, "--tools", tools) as client:
        names = await tool_names(client)
        assert [name for name in names if is_reserved_tool(name) and name not in OWN_TOOLS] == []
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
    path = written(tmp_path, {"raw": raw_server("delete_session", "context://sessions", "\x1b[31mred")})
    done = subprocess.run(
        [sys.executable, "-m", "contextstash", "gateway", "--config", str(path), "--check", "--db", tmp_path / "s.db"],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "raw: 'delete_session' is offered as 'raw__delete_session'" in done.stdout
    assert "raw: 'context://sessions' is offered as 'raw+context://sessions'" in done.stdout
    assert "\x1b" not in done.stdout
