"""`contextstash config trust`: trusting a project's file, and what the other commands report of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import KEY, UntrustedProject

FILE = 'summary_prompt = "gone"\nwindow = 90000\n'


@pytest.fixture
def untrusted(tmp_path: Path) -> UntrustedProject:
    untrusted = UntrustedProject(tmp_path)
    untrusted.write(FILE)
    return untrusted


def shown(untrusted: UntrustedProject, **environment: str) -> dict[str, Any]:
    done = untrusted.run("config", "show", "--json", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    found["settings"] = {row["name"]: row["value"] for row in found["settings"]}
    return found


def test_a_trusted_file_applies_whole_until_it_changes(untrusted: UntrustedProject) -> None:
    before = shown(untrusted)
    assert (before["settings"]["summary_prompt"], before["settings"]["window"]) == ("handoff", None)
    [line] = before["ignored"]
    assert f"contextstash config trust {untrusted.file}" in line
    done = untrusted.run("config", "trust", "--yes")
    assert 'summary_prompt = "gone"' in done.stdout
    trusted = shown(untrusted)
    assert (trusted["settings"]["summary_prompt"], trusted["ignored"]) == ("gone", [])
    untrusted.write(FILE + "# one comment more\n")
    assert shown(untrusted)["settings"]["summary_prompt"] == "handoff"
    untrusted.write(FILE)
    assert shown(untrusted)["settings"]["summary_prompt"] == "gone"


def test_only_the_user_may_read_the_list_and_an_entry_can_be_revoked(untrusted: UntrustedProject) -> None:
    untrusted.run("config", "trust", str(untrusted.file), "--yes")
    stored = untrusted.user_folder / "trusted.json"
    if os.name != "nt":
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert str(untrusted.file) in stored.read_text()
    untrusted.file.rename(untrusted.folder / "elsewhere.toml")
    untrusted.file.symlink_to(untrusted.folder / "elsewhere.toml")  # a file that has become a link can be revoked too
    assert untrusted.run("config", "trust", "--revoke").returncode == 0
    assert shown(untrusted)["settings"]["summary_prompt"] == "handoff"
    again = untrusted.run("config", "trust", "--revoke")
    assert (again.returncode, "is not trusted" in again.stderr) == (1, True)


def test_no_file_is_trusted_without_a_confirmation(untrusted: UntrustedProject) -> None:
    done = untrusted.run("config", "trust", typed="y\n")
    assert (done.returncode, "pass --yes" in done.stderr) == (1, True)
    assert not (untrusted.user_folder / "trusted.json").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [("prune_att = 1", "Did you mean"), ('secrets = "hide"', "secrets"), ("x", "not valid TOML")],
)
def test_an_invalid_file_is_not_trusted(untrusted: UntrustedProject, text: str, says: str) -> None:
    untrusted.write(text)
    done = untrusted.run("config", "trust", "--yes")
    assert (done.returncode, says in done.stderr) == (1, True)


@pytest.mark.parametrize("damaged", ["{", "[]", '{"files": 1}', ""])
def test_a_damaged_list_trusts_nothing_and_is_named(untrusted: UntrustedProject, damaged: str) -> None:
    untrusted.user_folder.mkdir(parents=True)
    (untrusted.user_folder / "trusted.json").write_text(damaged)
    assert shown(untrusted)["settings"]["summary_prompt"] == "handoff"
    done = untrusted.run("config", "trust", "--yes")
    assert (done.returncode, "trusted.json" in done.stderr) == (1, True)


def test_a_trusted_file_does_not_give_consent(untrusted: UntrustedProject) -> None:
    untrusted.write('summarizer = "anthropic"\nsummarizer_base_url = "http://127.0.0.1:9"\n')
    untrusted.run("config", "trust", "--yes")
    found = shown(untrusted, ANTHROPIC_API_KEY=KEY)
    assert found["settings"]["summarizer"] == "anthropic"
    assert found["network"] == "Nothing leaves this machine."


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "Nothing leaves this machine."),
        ({"ANTHROPIC_API_KEY": KEY}, "Nothing leaves this machine."),
        ({"CONTEXTSTASH_SUMMARIZER_MODEL": "m"}, "Nothing leaves this machine."),
        ({"CONTEXTSTASH_ANTHROPIC_API_KEY": KEY}, "Sessions may be sent to api.anthropic.com (model claude-haiku-4-5)"),
        (
            {
                "ANTHROPIC_API_KEY": KEY,
                "CONTEXTSTASH_SUMMARIZER_MODEL": "m",
                "CONTEXTSTASH_SUMMARIZER_BASE_URL": "http://user:secret@llm.example:81/v1",
            },
            "Sessions may be sent to llm.example:81 (model m): allowed by summarizer_model in environment.",
        ),
        (
            {"CONTEXTSTASH_ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://proxy.example"},
            "Sessions may be sent to proxy.example",
        ),
    ],
)
def test_config_show_says_where_sessions_may_be_sent(
    untrusted: UntrustedProject, environment: dict[str, str], says: str
) -> None:
    found = shown(untrusted, **environment)
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
