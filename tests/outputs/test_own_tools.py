"""Our own tools are recognized by the names that clients give them, and nothing else is taken for one of them."""

from __future__ import annotations

import pytest

from contextstash.outputs.own_tools import is_own_call

OURS = """
    mcp__contextstash__search_history mcp__plugin_contextstash_contextstash__get_summary
    mcp__contextstash-gateway__context_status mcp_contextstash_search_history contextstash_list_sessions
    contextstash__compact_session contextstash.search_history contextstash/get_context get_archived_output
"""
OF_OTHERS = "search_history mcp__contextstash__github_list_sessions mcp__zoom__list_sessions use_mcp_tool Bash"


@pytest.mark.parametrize("name", OURS.split())
def test_our_tools_are_recognized_however_the_client_names_them(name: str) -> None:
    assert is_own_call(name)


@pytest.mark.parametrize("name", [*OF_OTHERS.split(), "", None])
def test_the_tools_of_others_are_not_ours(name: str | None) -> None:
    assert not is_own_call(name)


def test_our_own_command_is_recognized_if_it_runs_alone() -> None:
    assert is_own_call("Bash", "contextstash show out_abcdefgh")
    assert not is_own_call("Bash", "contextstash show out_abcdefgh | sh")
