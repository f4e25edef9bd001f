"""A cloned repository may hold packages with the names of ours and of our libraries: none of them is ever imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from contextstash.clients.install import own_command
from tests.support.command_line import UntrustedProject
from tests.support.gateways import gateway, server, text_of

CLIENT = """
import http.client, os, urllib.parse
base = urllib.parse.urlsplit(os.environ["ANTHROPIC_BASE_URL"])
connection = http.client.HTTPConnection(base.netloc, timeout=60)
connection.request("GET", "/")
print("proxy answered", connection.getresponse().status)
"""


@pytest.fixture
def project(tmp_path: Path) -> UntrustedProject:
    made = UntrustedProject(tmp_path)
    for name in ("contextstash", "anyio", "mcp", "sqlite3"):
        made.write(
            f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r}); raise SystemExit\n", f"{name}/__init__.py"
        )
    return made


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="run passes a socket to its child")
def test_the_proxy_of_run_is_ours(project: UntrustedProject) -> None:
    client = project.folder / "claude"
    client.write_text(f"#!{sys.executable} -P\n{CLIENT}", "utf-8")
    client.chmod(0o700)
    done = project.run("run", "--upstream", "http://127.0.0.1:9", str(client))
    assert "proxy answered" in done.stdout, done.stderr
    assert not (project.folder / "imported").exists()


@pytest.mark.processes
async def test_a_gateway_started_in_the_project_runs_none_of_its_modules(project: UntrustedProject) -> None:
    async with gateway(project.project, {"raw": server("naming")}) as client:
        large = await client.call_tool("raw__long", {"megabytes": 1})
        assert len(text_of(large)) < 100_000
    assert not (project.folder / "imported").exists()


def test_clients_start_our_module_without_the_projects_folder(tmp_path: Path) -> None:
    python = os.fspath(tmp_path / "python")  # without our script beside it
    assert own_command(python) == [python, "-P", "-m", "contextstash"]
