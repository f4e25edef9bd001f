"""The plugin folder and the registry entry: what they name is there, and their versions are the package's.

The rules are those of Claude Code's plugin reference and of the MCP registry's format of server.json.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from contextstash import __version__
from contextstash.clients.client import client
from contextstash.mcp.server import build_server
from contextstash.request.handoff import MAX_PARTS
from contextstash.stash import Stash

ROOT = Path(__file__).parents[1]
PLUGINS = ROOT / "server" / "contextstash" / "clients" / "plugins"
PLUGIN = PLUGINS / "claude_code"

PUBLISHED = False
"""To be switched on the day of the publication: then `packages` in server.json leave its `_meta`, and the README's line
on where the package comes from changes. Until then whoever registers the name first decides what it starts."""


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_plugin_is_named_versioned_and_listed_in_the_marketplace() -> None:
    manifest = read(PLUGIN / ".claude-plugin" / "plugin.json")
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", manifest["name"])
    assert manifest["version"] == __version__
    for market in (ROOT, PLUGINS):  # of the checkout, and of the package
        [listed] = read(market / ".claude-plugin" / "marketplace.json")["plugins"]
        assert (listed["name"], (market / listed["source"]).resolve()) == (manifest["name"], PLUGIN.resolve())


def test_the_plugin_starts_its_server_and_its_hooks_by_its_own_launcher() -> None:
    server = read(PLUGIN / ".mcp.json")["mcpServers"]["contextstash"]
    hooks = read(PLUGIN / "hooks" / "hooks.json")["hooks"]
    commands = [hook["command"] for groups in hooks.values() for group in groups for hook in group["hooks"]]
    launcher = "${CLAUDE_PLUGIN_ROOT}/bin/contextstash"
    assert server["command"] == launcher
    known = client("claude-code").hooks
    assert known is not None
    assert set(hooks) == set(known.events)
    parts = [f" --part {number}/{MAX_PARTS}" for number in range(1, MAX_PARTS + 1)]
    expected = {f"{launcher} hook claude-code{part}" for part in ("", *parts)}
    assert {command.replace('"', "") for command in commands} == expected
    assert os.access(PLUGIN / "bin" / "contextstash", os.X_OK)


@pytest.mark.skipif(os.name == "nt", reason="the launcher is a shell script")
def test_the_launcher_finds_contextstash_and_never_fails_a_hook(tmp_path: Path) -> None:
    launcher = tmp_path / "plugin" / "bin" / "contextstash"
    shutil.copytree(PLUGIN, tmp_path / "plugin")
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    missing = subprocess.run([launcher, "--version"], env=bare, capture_output=True, text=True)
    hook = subprocess.run([launcher, "hook", "claude-code"], env=bare, capture_output=True, text=True)
    assert (missing.returncode, "make setup" in missing.stderr) == (1, True)
    assert (hook.returncode, hook.stdout) == (0, "")
    (tmp_path / "found").mkdir()
    script = tmp_path / "found" / "contextstash"
    script.write_text('#!/bin/sh\necho "called with $*"\n')
    script.chmod(0o755)
    found = {**bare, "PATH": f"{script.parent}:/usr/bin:/bin"}
    called = subprocess.run([launcher, "hook", "claude-code"], env=found, capture_output=True, text=True)
    assert called.stdout == "called with hook claude-code\n"


def packages_of(entry: Any) -> Any:
    """The packages of the registry entry: those that a client starts if the name is ours, else those that wait."""
    assert ("packages" in entry) is PUBLISHED
    waiting = entry.get("_meta", {}).get("io.modelcontextprotocol.registry/publisher-provided", {})
    return entry["packages"] if PUBLISHED else waiting["packages"]


BY_NAME = re.compile(
    r"(?:\buvx|\bnpx(?:\s+(?:-y|--yes))?|\bpipx\s+(?:run|install)|\buv\s+tool\s+(?:run|install)"
    r"|\bpip3?\s+install(?:\s+-\S+)*|\buv\s+add)[\s\"',\[\]]+contextstash(?![\w/-])"
)
"""Ways to run or install the package of this name from an index, in a shell, in JSON or in Python."""


@pytest.mark.skipif(PUBLISHED, reason="the name on the package index is ours")
def test_nothing_is_started_from_the_index_by_a_name_that_is_not_ours() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines() or pytest.skip("not a checkout")
    looked_at = [name for name in names if not name.startswith("tests/") and not name.endswith((".gz", ".svg", ".png"))]
    assert str((PLUGIN / "bin" / "contextstash").relative_to(ROOT)) in looked_at
    found = [
        name
        for name in looked_at
        if (ROOT / name).is_file() and BY_NAME.search((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert found == []
    for config in (ROOT / "mcp.json", PLUGIN / ".mcp.json"):
        for server in read(config)["mcpServers"].values():
            words = [server["command"], *server["args"]]
            assert words[0] != "uvx" or words[1] == "--from"


def test_the_registry_entry_names_this_package_and_this_version() -> None:
    entry = read(ROOT / "server.json")
    assert re.search(r"mcp-name: (\S+)", (ROOT / "README.md").read_text(encoding="utf-8"))[1] == entry["name"]  # type: ignore[index]
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["description"]) <= 100
    [package] = packages_of(entry)
    assert {entry["version"], package["version"]} == {__version__}
    assert (package["registryType"], package["identifier"]) == ("pypi", "contextstash")


async def test_the_bundle_names_the_tools_that_a_model_is_offered() -> None:
    async def never_opened() -> Stash:
        raise AssertionError("listing must not open the store")

    manifest = read(ROOT / "mcpb" / "manifest.json")
    async with Client(build_server(never_opened)) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
    assert {tool["name"] for tool in manifest["tools"]} == tools


def test_the_bundle_is_of_this_version_and_starts_what_it_holds() -> None:
    manifest = read(ROOT / "mcpb" / "manifest.json")
    assert manifest["version"] == __version__
    assert (ROOT / manifest["server"]["entry_point"]).is_file()
    configured = manifest["server"]["mcp_config"]
    assert configured["args"][-2:] == ["contextstash", "serve"]
    asked = {name for value in configured["env"].values() for name in re.findall(r"\$\{user_config\.(\w+)\}", value)}
    assert asked == set(manifest["user_config"])
