"""Where clients compact: each client's own setting, for one run or in its configuration."""

from __future__ import annotations

import json
import tomllib

import pytest

from contextstash.clients.client import Launch, WindowSetting, client, clients
from tests.support.command_line import CommandLine, failure_of


def compaction_setting(program: str) -> WindowSetting:
    found = client(program).window
    assert found is not None
    return found


def test_claude_code_is_given_a_window_33_000_tokens_above_the_wanted_size() -> None:
    setting = compaction_setting("claude")
    assert setting.value(setting.nearest(100_000)) == 133_000
    assert setting.value(setting.nearest(30_000)) == 100_000
    assert "67,000 tokens at the least" in str(setting.remark_on(30_000))
    assert setting.remark_on(67_000) is None


def test_each_client_gets_it_for_one_run_in_its_own_way() -> None:
    start = Launch(("client", "-c", "own=1"), {"A": "b"})
    claude, codex = compaction_setting("claude").for_run, compaction_setting("codex").for_run
    assert claude
    assert codex
    assert claude(start, 133_000) == Launch(start.command, {"A": "b", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "133000"})
    assert codex(start, 90_000).command == ("client", "-c", "model_auto_compact_token_limit=90000", "-c", "own=1")


@pytest.mark.parametrize("client", ["opencode", "cursor"])
def test_a_client_without_such_a_setting_is_told_so(contextstash: CommandLine, client: str) -> None:
    said = failure_of(contextstash.run("install", client, "--window", "100k", "--yes"))
    assert "Known: claude-code, codex, gemini" in said
    assert ("compaction.reserved" in said) == (client == "opencode")


def test_a_size_that_is_no_number_is_refused(contextstash: CommandLine) -> None:
    done = contextstash.run("install", "codex", "--window", "large", "--yes")
    assert done.returncode == 2
    assert "Example: 100k" in done.stderr


FILES = {"claude-code": ".claude/settings.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json"}
OWN = {
    "claude-code": '{"autoCompactWindow": 200000, "theme": "dark"}\n',
    "codex": 'model_auto_compact_token_limit = 200000\n\n[tui]\ntheme = "dark"\n',
    "gemini": '{"model": {"compressionThreshold": 0.7}, "theme": "dark"}\n',
}


@pytest.mark.parametrize("client", [each.name for each in clients() if each.window])
@pytest.mark.parametrize("own", [None, "other", "same key"])
@pytest.mark.parametrize("touched", [False, True])
def test_an_installed_window_is_undone_to_the_users_own_value(
    contextstash: CommandLine, client: str, own: str | None, touched: bool
) -> None:
    path = contextstash.folder / FILES[client]
    given = (
        OWN[client] if own == "same key" else {"codex": '[tui]\ntheme = "dark"\n'}.get(client, '{"theme": "dark"}\n')
    )
    if own is not None:
        path.parent.mkdir(parents=True)
        path.write_text(given)
    for window in ("100k", "120k"):
        done = contextstash.run("install", client, "--window", window, "--yes")
        assert done.returncode == 0, done.stderr
    assert {"claude-code": "153000", "codex": "120000", "gemini": "0.1144"}[client] in path.read_text()
    if touched:
        text = path.read_text()
        path.write_text(text.replace("dark", "light") if "dark" in text else f"{text}\n")
    assert contextstash.run("uninstall", client, "--yes").returncode == 0
    if own is None and not touched:
        assert not path.exists()
    elif own is not None:
        expected = given.replace("dark", "light") if touched else given
        found = path.read_text()
        assert found == expected or (touched and _values(client, found) == _values(client, expected))


def _values(client: str, text: str) -> object:
    return tomllib.loads(text) if client == "codex" else json.loads(text)


def test_a_value_that_the_user_has_changed_since_stays(contextstash: CommandLine) -> None:
    path = contextstash.folder / FILES["claude-code"]
    contextstash.run("install", "claude-code", "--window", "100k", "--yes")
    path.write_text(path.read_text().replace("133000", "500000"))
    contextstash.run("uninstall", "claude-code", "--yes")
    assert json.loads(path.read_text()) == {"autoCompactWindow": 500_000}
