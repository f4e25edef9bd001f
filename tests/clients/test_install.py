"""Into a client's configuration and out of it again, to the byte."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tomllib
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.support.client_files import write_session
from tests.support.command_line import CommandLine, environment_of

FILES = {
    "claude-desktop": "Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "vscode": "Code/User/mcp.json",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode/opencode.json",
    "pi": ".pi/agent/mcp.json",
}

JSON_BEFORE = """{
    "numStartups": 7,
    "mcpServers": {
        "git": {"command": "uvx", "args": ["mcp-server-git"]}
    },
    "ü": "ö \\ud83d"
}"""
TOML_BEFORE = """# my model
model = "gpt-5.2"   # the newest

[mcp_servers.git]
command = "uvx"
args = ["mcp-server-git"]
"""
BEFORE = {"codex": TOML_BEFORE}


def place(contextstash: CommandLine, client: str) -> Path:
    path = contextstash.folder / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def entry(client: str, text: str) -> Any:
    """What stands for contextstash in a client's file."""
    if client == "codex":
        return tomllib.loads(text)["mcp_servers"]["contextstash"]
    data = json.loads(text)
    return data[{"vscode": "servers", "opencode": "mcp"}.get(client, "mcpServers")]["contextstash"]


def run(contextstash: CommandLine, *arguments: str) -> str:
    done = contextstash.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("existed", [True, False])
def test_an_entry_starts_this_contextstash_and_leaves_the_former_bytes(
    contextstash: CommandLine, client: str, existed: bool
) -> None:
    path = contextstash.folder / FILES[client]
    before = BEFORE.get(client, JSON_BEFORE).encode()
    if existed:
        place(contextstash, client).write_bytes(before)
    run(contextstash, "install", client, "--yes")
    found = entry(client, path.read_text())
    command = found["command"] if client == "opencode" else [found["command"], *found["args"]]
    assert Path(command[0]).is_absolute()
    assert "serve" in command
    followed = command[command.index("--follow") + 1] if "--follow" in command else None
    assert followed == (client if client in ("codex", "gemini", "opencode", "pi") else None)
    assert ("git" in path.read_text()) == existed
    assert (client == "codex") or json.loads(path.read_text()).get("ü") == ("ö \ud83d" if existed else None)
    written = path.read_bytes()
    assert "installed in" in run(contextstash, "install", client, "--yes")
    assert path.read_bytes() == written
    run(contextstash, "uninstall", client, "--yes")
    assert (path.read_bytes() if path.exists() else None) == (before if existed else None)
    assert not list(contextstash.folder.rglob("*before-contextstash"))


PLUGINS = {"opencode": "opencode/plugins/contextstash.js", "pi": ".pi/agent/extensions/contextstash.js"}


@pytest.mark.parametrize("client", PLUGINS)
def test_a_plugin_names_this_contextstash_and_is_gone_afterwards(contextstash: CommandLine, client: str) -> None:
    path = contextstash.folder / PLUGINS[client]
    assert f"{path} would be created" in run(contextstash, "install", client, "--dry-run")
    assert not path.exists()
    run(contextstash, "install", client, "--yes", "--db", "mine.db")
    lines = path.read_text().splitlines()
    [program] = [json.loads(line.partition("=")[2]) for line in lines if line.startswith("const PROGRAM = ")]
    [options] = [json.loads(line.partition("=")[2]) for line in lines if line.startswith("const OPTIONS = ")]
    assert Path(program[0]).is_absolute()
    assert options == ["--db", str(contextstash.folder / "mine.db")]
    assert "installed in" in run(contextstash, "install", client, "--yes", "--db", "mine.db")
    path.write_text(path.read_text().replace("SECONDS = 10", "SECONDS = 20"))
    run(contextstash, "uninstall", client, "--yes")
    assert not path.exists()
    assert not (contextstash.folder / PLUGINS[client].split("/")[0]).exists(), "nor a folder that is empty then"


CALLS = """
const input = {}, transcript = process.argv[3], before = {}
const { ContextStash, default: pi } = await import(process.argv[2])
const called = { tool: "contextstash_search_history", toolName: "mcp__contextstash__search_history", input }
if (ContextStash) await (await ContextStash({}))["tool.execute.before"]({ ...called, sessionID: "s2" }, { args: input })
else pi({ on: (name, handler) => { before[name] = handler } })
await before.tool_call?.(called, { sessionManager: { getSessionFile: () => transcript } })
console.log(input.session_id)
"""


@pytest.mark.skipif(which("node") is None, reason="plugins run in their clients' JavaScript")
@pytest.mark.parametrize("client", PLUGINS)
def test_a_plugin_names_the_session_that_calls_a_tool(contextstash: CommandLine, client: str) -> None:
    paths = [
        write_session(client, contextstash.folder, name, "/srv/orchard", f"Task of {name}") for name in ("s1", "s2")
    ]
    run(contextstash, "install", client, "--yes", "--db", str(contextstash.database))
    script = contextstash.folder / "calls.mjs"
    script.write_text(CALLS)
    command = ["node", str(script), str(contextstash.folder / PLUGINS[client]), str(paths[1])]
    done = subprocess.run(command, env=environment_of(contextstash.folder), capture_output=True, text=True, check=True)
    assert done.stdout == "s2\n"
    assert contextstash.json("search", "task")["hits"]


def test_another_plugin_of_its_name_stays(contextstash: CommandLine) -> None:
    path = contextstash.folder / PLUGINS["pi"]
    path.parent.mkdir(parents=True)
    path.write_text("// my own\n")
    assert "not installed in pi" in run(contextstash, "uninstall", "pi", "--yes")
    assert path.read_text() == "// my own\n"
    run(contextstash, "install", "pi", "--yes")
    run(contextstash, "uninstall", "pi", "--yes")
    assert path.read_text() == "// my own\n"


@pytest.mark.parametrize("client", ["codex", "cursor"])
def test_what_the_user_changed_since_stays(contextstash: CommandLine, client: str) -> None:
    path = place(contextstash, client)
    path.write_text(BEFORE.get(client, JSON_BEFORE))
    run(contextstash, "install", client, "--yes")
    path.write_text(path.read_text().replace("mcp-server-git", "mcp-server-git2"))
    run(contextstash, "uninstall", client, "--yes")
    text, is_toml = path.read_text(), client == "codex"
    assert [each in text for each in ("contextstash", "mcp-server-git2")] == [False, True]
    assert [each in text for each in ("# my", "# the newest")] == [is_toml, is_toml]


HOOKS = {"codex": (".codex/hooks.json", 8), "gemini": (".gemini/settings.json", 2)}
"""The files, and how many hooks are ours: Codex bounds what one may add, so three give a part of a hand-off each."""


@pytest.mark.parametrize("client", HOOKS)
@pytest.mark.parametrize("touched", [False, True])
def test_hooks_are_added_beside_the_users_own_and_taken_out_again(
    contextstash: CommandLine, client: str, touched: bool
) -> None:
    file, count = HOOKS[client]
    path = contextstash.folder / file
    path.parent.mkdir(parents=True)
    greet = {"type": "command", "command": f"/opt/contextstash/greet hook {client}-cli"}
    own = f'{{"hooks": {{"SessionStart": [{{"matcher": "x", "hooks": [{json.dumps(greet)}]}}]}},   "o": 1}}'
    path.write_text(own)
    said = run(contextstash, "install", client, "--yes")
    assert ("Codex runs new hooks only once you trust them" in said) == (client == "codex")
    hooks = json.loads(path.read_text())["hooks"]
    assert hooks["SessionStart"][0] == json.loads(own)["hooks"]["SessionStart"][0]
    called = [hook["command"] for groups in hooks.values() for group in groups for hook in group["hooks"]]
    assert sum(f"contextstash hook {client}" in command for command in called) == count
    assert "already" in run(contextstash, "install", client, "--yes")
    if touched:
        path.write_text(path.read_text().replace("greet", "greet2"))
    assert "without hooks for" in run(contextstash, "uninstall", client, "--yes")
    if touched:
        assert json.loads(path.read_text()) == json.loads(own.replace("greet", "greet2"))
    else:
        assert path.read_text() == own


def test_the_database_named_at_the_installation_reaches_server_and_hooks(contextstash: CommandLine) -> None:
    database = contextstash.folder / "named here.db"
    run(contextstash, "install", "codex", "--yes")  # with the one that the environment names
    run(contextstash, "install", "codex", "--yes", "--db", str(database))
    served = entry("codex", place(contextstash, "codex").read_text())
    assert served["args"][-2:] == ["--db", str(database)]
    settings = json.loads((contextstash.folder / ".codex" / "hooks.json").read_text())
    for event, [group] in settings["hooks"].items():
        commands = [shlex.split(hook["command"]) for hook in group["hooks"]]
        parts = [["--part", f"{number}/3"] for number in (1, 2, 3)] if event == "SessionStart" else [[]]
        assert [command[command.index("hook") :] for command in commands] == [
            ["hook", "codex", *part, "--db", str(database)] for part in parts
        ]
    hook = settings["hooks"]["PostToolUse"][0]["hooks"][0]
    output = {"tool_name": "Bash", "tool_response": "line\n" * 9_000}
    event = json.dumps({"hook_event_name": "PostToolUse", "session_id": "one", **output})
    called = subprocess.run(shlex.split(hook["command"]), input=event, text=True, capture_output=True, check=True)
    assert "out_" in called.stdout
    assert database.exists()
    run(contextstash, "uninstall", "codex", "--yes")
    assert not (contextstash.folder / ".codex").exists()


def test_what_would_change_is_shown_and_nothing_written_unless_agreed(contextstash: CommandLine) -> None:
    path = contextstash.folder / FILES["cursor"]
    shown = run(contextstash, "install", "cursor", "--dry-run").splitlines()
    assert shown[0] == f"{path} would be created:"
    assert shown[1].startswith("  the MCP server contextstash: /")
    done = contextstash.run("install", "cursor")
    assert (done.returncode, "Nothing was written" in done.stderr, "pass --yes" in done.stderr) == (1, True, True)
    assert "mcp.json would be created" in done.stdout
    assert not path.exists()
    assert "not installed" in run(contextstash, "uninstall", "cursor", "--yes")


@pytest.mark.parametrize(
    ("client", "content", "says"),
    [
        ("cursor", b"{ // mine\n}", "has comments"),
        ("codex", b"model = ", "not valid TOML: Invalid value"),
        ("gemini", b"[1]", "mapping of settings"),
        ("opencode", b'{"mcp": 3}', "not a mapping"),
        ("gemini", b'{"hooks": {"SessionEnd": "x"}}', "does not list groups of hooks"),
        ("cursor", b'{"mcpServers": {"contextstash": {"url": "http://localhost"}}}', "is a server at an address"),
        ("codex", b'mcp_servers.a.command = "a"\nmcp_servers.a.args = []\nmodel = "x"\n', "moving other settings"),
    ],
)
def test_a_file_that_cannot_be_read_or_would_not_keep_its_content_is_not_changed(
    contextstash: CommandLine, client: str, content: bytes, says: str
) -> None:
    path = place(contextstash, client)
    path.write_bytes(content)
    done = contextstash.run("install", client, "--yes")
    said, _, by_hand = done.stderr.partition(" To be added by hand:\n")
    assert (done.returncode, says in said, said.endswith("It was not changed.")) == (1, True, True)
    assert entry(client, by_hand)["command"]
    assert path.read_bytes() == content


def test_a_file_with_comments_stays_and_its_clients_plugin_is_installed(contextstash: CommandLine) -> None:
    path, plugin = place(contextstash, "opencode"), contextstash.folder / PLUGINS["opencode"]
    path.write_text("{ // mine\n}")
    done = contextstash.run("install", "opencode", "--yes")
    assert (done.returncode, f"{path} has comments" in done.stderr, plugin.exists()) == (1, True, True)
    run(contextstash, "uninstall", "opencode", "--yes")
    assert (path.read_text(), plugin.exists()) == ("{ // mine\n}", False)


@pytest.mark.parametrize("client", ["cursor", "codex", "opencode"])
def test_a_users_own_entry_keeps_its_keys_and_comes_back(contextstash: CommandLine, client: str) -> None:
    path, servers = place(contextstash, client), {"codex": "mcp_servers", "opencode": "mcp"}.get(client, "mcpServers")
    before = f'{{"{servers}": {{"contextstash": {{"command": "uvx", "env": {{"A": "1"}}}}}}}}'
    if client == "codex":
        before = f'[{servers}.contextstash]\ncommand = "uvx" # mine\nenv = {{ A = "1" }}\n'
    path.write_text(before)
    assert "(your env stays)" in run(contextstash, "install", client, "--yes")
    found = entry(client, path.read_text())
    assert (found["env"], found["command"] == "uvx") == ({"A": "1"}, False)
    run(contextstash, "install", client, "--yes", "--db", "other.db")
    run(contextstash, "uninstall", client, "--yes")
    assert path.read_text() == before
    run(contextstash, "install", client, "--yes")
    path.write_text(path.read_text().replace('"1"', '"2"'))
    run(contextstash, "uninstall", client, "--yes")
    found = entry(client, path.read_text())
    assert found == {"command": "uvx", "env": {"A": "2"}}


@pytest.mark.parametrize(
    ("client", "file", "before"),
    [
        ("cursor", ".cursor/mcp.json", '{"mcpServers":{}}'),
        ("codex", ".codex/config.toml", "[mcp_servers]\n\n[features]\nx = 1\n"),
        ("claude-code", ".claude/settings.json", '{"env":{}, "enabledPlugins":{}, "model":"opus"}'),
    ],
)
def test_an_empty_place_is_the_users_own(contextstash: CommandLine, client: str, file: str, before: str) -> None:
    path = contextstash.folder / file
    path.parent.mkdir()
    path.write_text(before)
    run(contextstash, "install", client, "--yes")
    run(contextstash, "uninstall", client, "--yes")
    assert path.read_text() == before


@pytest.mark.skipif(os.name == "nt", reason="links and modes are another matter there")
def test_a_link_stays_one_permissions_stay_and_no_link_directs_the_backup_elsewhere(contextstash: CommandLine) -> None:
    real, other = contextstash.folder / "dotfiles.json", contextstash.folder / "other.json"
    real.write_text("{}")
    real.chmod(0o640)
    other.write_text("mine")
    path = place(contextstash, "cursor")
    path.symlink_to(real)
    path.with_name("mcp.json.before-contextstash").symlink_to(other)
    run(contextstash, "install", "cursor", "--yes")
    assert path.is_symlink()
    assert "contextstash" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    run(contextstash, "uninstall", "cursor", "--yes")
    assert (path.is_symlink(), real.read_text(), other.read_text()) == (True, "{}", "mine")


def test_all_clients_on_the_machine_are_installed_at_once(contextstash: CommandLine) -> None:
    for name in (".claude", ".codex", ".cursor", ".gemini"):
        (contextstash.folder / name).mkdir()
    done = contextstash.run("install", "--yes", environment={"PATH": "/nowhere"})
    assert done.returncode == 0, done.stderr
    named = [line for line in done.stdout.splitlines() if line.endswith(":") and "/" not in line]
    assert named == ["claude-code:", "codex:", "gemini:", "cursor:"]
    assert (contextstash.folder / ".codex" / "hooks.json").exists()
    assert (contextstash.folder / ".cursor" / "mcp.json").exists()


def test_a_client_whose_file_cannot_be_read_stands_in_the_way_of_no_other(contextstash: CommandLine) -> None:
    place(contextstash, "codex").write_text("model = ")
    path = place(contextstash, "cursor")
    done = contextstash.run("install", "--yes", environment={"PATH": "/nowhere"})
    assert (done.returncode, "config.toml is not valid TOML" in done.stderr, path.exists()) == (1, True, True)


SETTINGS = '{"enabledPlugins": {"other@market": true}, "theme": "dark"}'
PLUGIN = "contextstash@contextstash"


@pytest.mark.parametrize("before", [SETTINGS, None])
def test_claude_code_loads_our_plugin_from_this_package_until_it_is_uninstalled(
    contextstash: CommandLine, before: str | None
) -> None:
    path = contextstash.folder / ".claude" / "settings.json"
    path.parent.mkdir()
    if before is not None:
        path.write_text(before)
    assert "Installed. Restart claude-code" in run(contextstash, "install", "claude", "--db", "a.db", "--yes")
    assert "already installed in claude-code" in run(contextstash, "install", "claude-code", "--db", "a.db", "--yes")
    settings = json.loads(path.read_text())
    folder = Path(settings["extraKnownMarketplaces"]["contextstash"]["source"]["path"])
    [listed] = json.loads((folder / ".claude-plugin" / "marketplace.json").read_text())["plugins"]
    assert os.access(folder / listed["source"] / "bin" / "contextstash", os.X_OK)
    assert settings["enabledPlugins"][PLUGIN] is True
    assert settings["env"]["CONTEXTSTASH_DB"] == str(contextstash.folder / "a.db")
    assert "without our plugin" in run(contextstash, "uninstall", "claude-code", "--yes")
    assert (path.read_text() if path.exists() else None) == before


def test_what_claude_codes_own_command_installed_leaves_with_it(contextstash: CommandLine) -> None:
    folder = contextstash.folder / ".claude"
    (folder / "plugins").mkdir(parents=True)
    market = {"contextstash": {"source": {"source": "directory", "path": "/checkout"}}}
    written = {"extraKnownMarketplaces": market, "enabledPlugins": {PLUGIN: True}, "theme": "dark"}
    (folder / "settings.json").write_text(json.dumps(written))
    (folder / "plugins" / "known_marketplaces.json").write_text(json.dumps({**market, "market": {}}))
    (folder / "plugins" / "installed_plugins.json").write_text(json.dumps({"version": 2, "plugins": {PLUGIN: []}}))
    run(contextstash, "install", "claude-code", "--yes")
    said = run(contextstash, "uninstall", "claude-code", "--yes")
    assert said.count(":\n") == said.count("  without") == 3
    assert [json.loads(file.read_text()) for file in sorted(folder.rglob("*.json"))] == [
        {"version": 2, "plugins": {}},
        {"market": {}},
        {"theme": "dark"},
    ]


@pytest.mark.skipif(os.name == "nt", reason="links are another matter there")
def test_a_link_to_no_file_leads_to_none_again(contextstash: CommandLine) -> None:
    real, path = contextstash.folder / "dotfiles.json", place(contextstash, "cursor")
    path.symlink_to(real)
    run(contextstash, "install", "cursor", "--yes")
    assert "contextstash" in real.read_text()
    run(contextstash, "uninstall", "cursor", "--yes")
    assert (path.is_symlink(), real.exists()) == (True, False)


def test_what_was_changed_between_two_installations_is_there_after_both_are_taken_back(
    contextstash: CommandLine,
) -> None:
    path = place(contextstash, "codex")
    path.write_text("# mine\nmodel_auto_compact_token_limit = 90_000\n")
    run(contextstash, "install", "codex", "--db", "a.db", "--yes")
    path.write_text(f'model = "gpt-5.2"\n{path.read_text()}')
    run(contextstash, "install", "codex", "--db", "b.db", "--yes")
    assert "b.db" in path.read_text()
    run(contextstash, "uninstall", "codex", "--yes")
    assert path.read_text().strip() == 'model = "gpt-5.2"\n# mine\nmodel_auto_compact_token_limit = 90_000'
