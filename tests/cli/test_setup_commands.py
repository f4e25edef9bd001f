"""`contextstash doctor`, `config`, `demo` and `token`: an installation and what the user says about it."""

from __future__ import annotations

import html
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import ANSI, KEY, CommandLine, UntrustedProject, failure_of


def findings(contextstash: CommandLine) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by the name of the check."""
    done = contextstash.run("doctor", "--json")
    return done.returncode, {finding["what"]: finding for finding in json.loads(done.stdout)}


@pytest.mark.processes
def test_a_new_machine_has_no_problems_and_the_next_steps_are_named(contextstash: CommandLine) -> None:
    code, found = findings(contextstash)
    assert code == 0
    assert found["round trip"]["state"] == "ok"
    assert found["clients"]["advice"] == "contextstash install CLIENT"
    assert "No problems found." in contextstash.run("doctor").stdout


@pytest.mark.processes
def test_an_installed_client_whose_command_is_gone_is_found(contextstash: CommandLine) -> None:
    files = {"cursor": ".cursor/mcp.json", "pi (plugin)": ".pi/agent/extensions/contextstash.js"}
    for what in files:
        contextstash.run("install", what.split()[0], "--yes")
    found = findings(contextstash)[1]
    assert {found[what]["state"] for what in files} == {"ok"}
    program = found["cursor"]["says"].removeprefix("starts ")
    for file in files.values():
        path = contextstash.folder / file
        path.write_text(path.read_text().replace(program, "/nowhere/\\u001bcontextstash"))
    code, found = findings(contextstash)
    assert code == 1
    for what in files:
        assert found[what]["advice"] == f"contextstash install {what.split()[0]}"
        assert "\x1b" not in found[what]["says"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("sessions.db", b"no database at all" * 200, "no SQLite database"),
        ("contextstash/contextstash.toml", b"prune_att = 1", "Did you mean 'prune_at'"),
        ("contextstash/contextstash.toml", b"agents = 1", "'agents' must hold tables"),
    ],
)
def test_a_damaged_file_is_named(contextstash: CommandLine, name: str, content: bytes, says: str) -> None:
    path = contextstash.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    code, found = findings(contextstash)
    assert code == 1
    assert any(says in finding["says"] for finding in found.values() if finding["state"] == "wrong")


@pytest.mark.processes
@pytest.mark.parametrize("name", [".claude.json", ".claude/settings.json"])
def test_a_clients_file_that_cannot_be_read_is_only_noted(contextstash: CommandLine, name: str) -> None:
    path = contextstash.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{ mine }")
    code, found = findings(contextstash)
    assert (code, found["claude-code"]["state"]) == (0, "note")
    assert "not valid JSON" in found["claude-code"]["says"]


@pytest.mark.processes
def test_a_database_that_others_may_read_is_found(contextstash: CommandLine) -> None:
    contextstash.run("sessions")
    contextstash.database.chmod(0o644)
    code, found = findings(contextstash)
    assert (code, found["permissions"]["state"]) == (1, "wrong")
    assert found["permissions"]["advice"].startswith("chmod 600")


@pytest.mark.processes
def test_an_installed_client_without_a_hook_or_one_that_it_does_not_trust_is_told_so(contextstash: CommandLine) -> None:
    contextstash.run("install", "gemini", "--yes")
    contextstash.run("install", "codex", "--yes")
    found = findings(contextstash)[1]
    assert "gemini hooks" not in found
    assert "/hooks shows them" in found["codex hooks"]["advice"]
    trusted = f'[hooks.state."{contextstash.folder}/.codex/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:1"\n'
    with (contextstash.folder / ".codex" / "config.toml").open("a") as config:
        config.write(trusted)
    path = contextstash.folder / ".gemini" / "settings.json"
    settings = json.loads(path.read_text())
    del settings["hooks"]["SessionEnd"]
    path.write_text(json.dumps(settings))
    found = findings(contextstash)[1]
    assert "codex hooks" not in found
    missing = found["gemini hooks"]
    assert (missing["says"], missing["advice"]) == ("missing for SessionEnd", "contextstash install gemini")


@pytest.mark.processes
def test_our_plugin_in_claude_code_counts_as_installed(contextstash: CommandLine) -> None:
    """`claude plugin install contextstash@contextstash` writes no more than this into the user's settings."""
    settings = contextstash.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"enabledPlugins": {"contextstash@contextstash": True}}))
    _, found = findings(contextstash)
    assert "its server, hooks and mod are there" in found["claude-code (plugin)"]["says"]
    assert "clients" not in found


def shown(contextstash: CommandLine, **environment: str) -> dict[str, tuple[Any, str]]:
    """Value and layer by setting."""
    answer = contextstash.json("config", "show", environment=environment)
    return {row["name"]: (row["value"], row["layer"]) for row in answer["settings"]}


def settings_file(contextstash: CommandLine) -> Path:
    return contextstash.folder / "contextstash" / "contextstash.toml"


def test_each_value_is_shown_with_the_layer_that_set_it(contextstash: CommandLine) -> None:
    file = contextstash.folder / "contextstash.toml"
    file.write_text('preset = "n-or-k"\nsummary_tokens = 900\n')
    assert contextstash.run("config", "trust", str(file), "--yes").returncode == 0
    found = shown(contextstash, CONTEXTSTASH_TOKENS_AT="32000")
    assert found["messages_at"] == (30, "preset n-or-k")
    assert found["tokens_at"] == (32_000, "environment")
    assert found["summary_tokens"] == (900, str(file))
    assert found["output_cut"] == ("smart", "default")


def test_a_setting_is_written_with_its_type_and_in_force_at_once(contextstash: CommandLine) -> None:
    done = contextstash.run("config", "set", "window=123456", "automatic=off", "preset=default-cost")
    assert done.stdout.splitlines() == ["window = 123456", "automatic = False", "preset = default-cost"]
    text = settings_file(contextstash).read_text()
    assert text == 'window = 123456\nautomatic = false\npreset = "default-cost"\n'
    assert shown(contextstash)["window"] == (123_456, str(settings_file(contextstash)))


def test_comments_and_other_settings_stay(contextstash: CommandLine) -> None:
    file = settings_file(contextstash)
    file.parent.mkdir()
    file.write_text("# mine\nwindow = 1000  # small\nmessages_at = 5\n")
    contextstash.run("config", "set", "compact_at=0.8", "--unset", "window")
    contextstash.run("config", "set", "messages_at=9")
    assert file.read_text() == "# mine\nmessages_at = 9\ncompact_at = 0.8\n"


def test_a_wrong_name_or_value_writes_nothing(contextstash: CommandLine) -> None:
    near = failure_of(contextstash.run("config", "set", "windwo=5"))
    assert near == "There is no setting 'windwo' (in config set). Did you mean 'window'?"
    far = failure_of(contextstash.run("config", "set", "foo=1"))
    assert far.endswith("(in config set). contextstash config show lists the settings.")
    assert "compact_at" in failure_of(contextstash.run("config", "set", "compact_at=seven"))
    assert "key=value" in failure_of(contextstash.run("config", "set", "window"))
    assert "Nothing to set" in failure_of(contextstash.run("config", "set"))
    assert not settings_file(contextstash).exists()


FILE = 'summary_prompt = "gone"\nwindow = 90000\n'


@pytest.fixture
def untrusted(tmp_path: Path) -> UntrustedProject:
    untrusted = UntrustedProject(tmp_path)
    untrusted.write(FILE)
    return untrusted


def shown_there(untrusted: UntrustedProject, **environment: str) -> dict[str, Any]:
    done = untrusted.run("config", "show", "--json", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    found["settings"] = {row["name"]: row["value"] for row in found["settings"]}
    return found


def test_a_trusted_file_applies_whole_until_it_changes(untrusted: UntrustedProject) -> None:
    before = shown_there(untrusted)
    assert (before["settings"]["summary_prompt"], before["settings"]["window"]) == ("handoff", None)
    [line] = before["ignored"]
    assert f"contextstash config trust {untrusted.file}" in line
    done = untrusted.run("config", "trust", "--yes")
    assert 'summary_prompt = "gone"' in done.stdout
    trusted = shown_there(untrusted)
    assert (trusted["settings"]["summary_prompt"], trusted["ignored"]) == ("gone", [])
    untrusted.write(FILE + "# one comment more\n")
    assert shown_there(untrusted)["settings"]["summary_prompt"] == "handoff"
    untrusted.write(FILE)
    assert shown_there(untrusted)["settings"]["summary_prompt"] == "gone"


def test_only_the_user_may_read_the_list_and_a_link_to_the_file_is_another(untrusted: UntrustedProject) -> None:
    untrusted.run("config", "trust", str(untrusted.file), "--yes")
    stored = untrusted.user_folder / "trusted.json"
    if os.name != "nt":
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert str(untrusted.file) in stored.read_text()
    untrusted.file.rename(untrusted.folder / "elsewhere.toml")
    untrusted.file.symlink_to(untrusted.folder / "elsewhere.toml")
    assert shown_there(untrusted)["settings"]["summary_prompt"] == "handoff"


def test_no_file_is_trusted_without_a_confirmation_and_no_invalid_one(untrusted: UntrustedProject) -> None:
    done = untrusted.run("config", "trust", typed="y\n")
    assert (done.returncode, "pass --yes" in done.stderr) == (1, True)
    untrusted.write("prune_att = 1")
    assert "Did you mean" in untrusted.run("config", "trust", "--yes").stderr
    assert not (untrusted.user_folder / "trusted.json").exists()


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"ANTHROPIC_API_KEY": KEY}, "Nothing leaves this machine."),
        (
            {"CONTEXTSTASH_ANTHROPIC_API_KEY": KEY},
            "Sessions may be sent to https://api.anthropic.com (model claude-haiku-4-5)",
        ),
        (
            {
                "ANTHROPIC_API_KEY": KEY,
                "CONTEXTSTASH_SUMMARIZER_MODEL": "m",
                "CONTEXTSTASH_SUMMARIZER_BASE_URL": "http://user:secret@llm.example:81/v1",
            },
            "Sessions may be sent to http://llm.example:81 (model m): allowed by summarizer_model in environment.",
        ),
        (
            {"CONTEXTSTASH_ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "https://llm.example?key=secret"},
            "Sessions may be sent to https://llm.example (model claude-haiku-4-5)",
        ),
    ],
)
def test_config_show_says_where_sessions_may_be_sent(
    untrusted: UntrustedProject, environment: dict[str, str], says: str
) -> None:
    found = shown_there(untrusted, **environment)
    text = untrusted.run("config", "show", **environment)
    assert found["network"].startswith(says)
    assert says in text.stdout
    assert KEY not in text.stdout + str(found)
    assert ":secret" not in text.stdout + str(found)


def test_doctor_reports_the_network_use(untrusted: UntrustedProject) -> None:
    untrusted.configure('[agents.quick]\nsummarizer = "anthropic"\n')
    done = untrusted.run("doctor", "--json", ANTHROPIC_API_KEY=KEY)
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert "config trust" in done.stderr
    assert done.returncode == 0
    assert found["network"]["says"] == "Nothing leaves this machine."
    assert "ANTHROPIC_API_KEY is set but not used" in found["network"]["advice"]
    assert "api.anthropic.com" in found["network, agent quick"]["says"]


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = CommandLine(tmp_path_factory.mktemp("home")).run("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert ANSI not in done.stdout
    return done.stdout


def tokens_before_and_after(step: str) -> tuple[int, ...]:
    [pair] = re.findall(r"([\d,]+) → ([\d,]+) tokens", step)
    return tuple(int(number.replace(",", "")) for number in pair)


def test_the_demonstration_shrinks_the_view_shows_what_left_and_restores_it_identically(output: str) -> None:
    _, *parts = re.split(r"^\d\. ", output, flags=re.MULTILINE)
    steps = {part.split()[0].strip(":"): part for part in parts}
    assert list(steps) == ["Record", "Prune", "Compact", "Retrieve", "Restore"]
    full, pruned = tokens_before_and_after(steps["Prune"])
    before_compaction, compacted = tokens_before_and_after(steps["Compact"])
    before_restore, restored = tokens_before_and_after(steps["Restore"])
    assert full > pruned == before_compaction > compacted == before_restore
    assert restored == full
    handle = re.search(r"out_\w+", steps["Retrieve"])
    assert handle
    quoted = "\n".join(line for line in steps["Prune"].splitlines() if line.startswith("  │ "))
    assert handle.group() in quoted
    assert (steps["Retrieve"].count("identical"), steps["Restore"].count("identical")) == (1, 2)
    assert "DIFFERENT" not in output
    assert "schema" in steps["Compact"], "the requirement of the user"


def test_the_picture_in_the_readme_shows_the_output_of_the_demonstration(output: str) -> None:
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    texts = [
        html.unescape(text).replace("\xa0", " ").strip() for text in re.findall(r"<text[^>]*>(.*?)</text>", picture)
    ]
    shown = [text for text in texts if text and text != "contextstash demo"]  # the title of the window
    assert len(shown) > 30
    assert [text for text in shown if text not in output] == []
    assert "docs/images/demo.svg" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_token_is_printed_once_listed_without_its_secret_and_revoked(contextstash: CommandLine) -> None:
    made = contextstash.run("token", "create", "laptop", "--owner", "alice", "--scope", "admin", "--scope", "read")
    assert made.returncode == 0
    secret = made.stdout.strip()
    assert secret.startswith("cst_")
    assert secret not in made.stderr
    assert "the sessions of alice: read, admin" in made.stderr
    [listed] = contextstash.json("token", "list")["tokens"]
    assert (listed["name"], listed["owner"], listed["scopes"]) == ("laptop", "alice", ["read", "admin"])
    assert secret not in contextstash.run("token", "list").stdout
    assert secret.encode() not in contextstash.database.read_bytes()
    assert contextstash.run("token", "revoke", "laptop").stdout == "Revoked laptop.\n"
    assert contextstash.json("token", "list") == {"tokens": []}


def test_a_token_can_expire_belongs_to_its_name_by_default_and_mistakes_are_named(contextstash: CommandLine) -> None:
    made = contextstash.json("token", "create", "bob", "--days", "30")
    assert (made["owner"], made["scopes"], "expires_at" in made) == ("bob", ["read", "write"], True)
    assert "There is a token bob already" in failure_of(contextstash.run("token", "create", "bob"))
    assert "There is no token eve" in failure_of(contextstash.run("token", "revoke", "eve"))


def test_a_damaged_list_trusts_nothing_and_is_named(untrusted: UntrustedProject) -> None:
    untrusted.user_folder.mkdir(parents=True)
    (untrusted.user_folder / "trusted.json").write_text("{")
    assert shown_there(untrusted)["settings"]["summary_prompt"] == "handoff"
    done = untrusted.run("config", "trust", "--yes")
    assert (done.returncode, "trusted.json" in done.stderr) == (1, True)
