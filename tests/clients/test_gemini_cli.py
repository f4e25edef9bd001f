"""The real Gemini CLI with our server and hooks: a long output is cut, its whole is found again, the session recorded.

Runs if `gemini` is on the PATH, against a provider on loopback.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.gemini_provider import Planned, gemini_provider
from tests.support.real_clients import SECONDS, client_environment, in_the_end, program, run_real

PLANTED = 'valve 7 reports "stuck"'
COMMAND = f"seq 1 3000; echo '{PLANTED}'; seq 1 3000"

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


def results(request: dict[str, Any]) -> list[str]:
    parts = [part for content in request["contents"] for part in content["parts"]]
    return ["".join(part["functionResponse"]["response"].values()) for part in parts if "functionResponse" in part]


def test_a_cut_output_is_found_again_by_its_model(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / ".gemini").mkdir()
    chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (tmp_path / ".gemini" / "settings.json").write_text(json.dumps(chosen))
    ours = CommandLine(tmp_path)
    gemini = program("gemini")
    assert ours.run("install", "gemini", "--yes").returncode == 0

    def plan(number: int) -> Planned:
        if number == 0:
            return Planned(calls=(("run_shell_command", {"command": COMMAND}),))
        if number == 1:
            return Planned(calls=(("mcp_contextstash_search_history", {"query": "valve stuck"}),))
        if number == 2:
            handle = re.findall(r"out_\w+", results(provider.requests[-1])[-1])[-1]  # of the request before
            return Planned(calls=(("mcp_contextstash_get_archived_output", {"handle": handle, "pattern": "valve"}),))
        return Planned("Done.")

    with gemini_provider(1_000_000, plan, signed=False) as provider:
        own = {"GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        environment = client_environment(tmp_path, GOOGLE_GEMINI_BASE_URL=provider.url, **own)
        run_real([gemini, "--yolo", "-m", "gemini-3-pro-preview", "-p", "Find the valve."], tmp_path, environment)
    offered = {each["name"] for tool in provider.requests[0]["tools"] for each in tool["functionDeclarations"]}
    assert "mcp_contextstash_search_history" in offered
    cut, found, page = results(provider.requests[-1])
    assert cut.startswith("This is no error")
    assert len(cut) <= 10_200  # of 28,000
    assert PLANTED in found
    assert f"3002:{PLANTED}" in page
    assert in_the_end(lambda: bool(ours.json("search", "valve stuck")["hits"]))
    [session] = ours.json("sessions")["sessions"]
    assert (session["agent"], session["messages"] > 3) == ("gemini", True)
