"""`contextstash config`: the effective settings, and the layer that set each."""

from __future__ import annotations

from typing import Any

from tests.support.command_line import CommandLine, failure_of


def shown(contextstash: CommandLine, *arguments: str, **environment: str) -> dict[str, tuple[Any, str]]:
    """Value and layer by setting."""
    answer = contextstash.json("config", "show", *arguments, environment=environment)
    return {row["name"]: (row["value"], row["layer"]) for row in answer["settings"]}


def accepted(contextstash: CommandLine, *files: str) -> None:
    for file in files:
        assert contextstash.run("config", "trust", str(contextstash.folder / file), "--yes").returncode == 0


def test_each_value_is_shown_with_the_layer_that_set_it(contextstash: CommandLine) -> None:
    (contextstash.folder / "contextstash.toml").write_text('preset = "n-or-k"\nsummary_tokens = 900\n')
    (contextstash.folder / "agents").mkdir()
    (contextstash.folder / "agents" / "quick.yaml").write_text("context:\n  messages_at: 15\n")
    accepted(contextstash, "contextstash.toml", "agents/quick.yaml")
    found = shown(contextstash, "--agent", "quick", "--set", "prune_keep_last=7", CONTEXTSTASH_TOKENS_AT="32000")
    assert found["messages_at"] == (15, str(contextstash.folder / "agents" / "quick.yaml"))
    assert found["tokens_at"] == (32_000, "environment")
    assert found["prune_keep_last"] == (7, "--set")
    assert found["summary_tokens"] == (900, str(contextstash.folder / "contextstash.toml"))
    assert found["compact_keep_messages"] == (6, "preset n-or-k")
    assert found["prune_at"] == (1.0, "preset n-or-k")
    assert found["output_cut"] == ("smart", "default")
    assert shown(contextstash)["messages_at"] == (30, "preset n-or-k")


def test_an_agent_without_a_file_of_its_own_is_named(contextstash: CommandLine) -> None:
    assert "There is no file agents/bob.yaml" in failure_of(contextstash.run("config", "show", "--agent", "bob"))


def test_a_key_is_never_shown(contextstash: CommandLine) -> None:
    key = {"ANTHROPIC_API_KEY": "sk-ant-secret"}
    done = contextstash.run("config", "show", environment=key)
    assert "ANTHROPIC_API_KEY is set but not used" in done.stdout
    assert "sk-ant-secret" not in done.stdout + done.stderr


def test_every_setting_is_shown_with_its_default(contextstash: CommandLine) -> None:
    every = contextstash.run("config", "show").stdout.splitlines()
    assert any(line.split() == ["output_tokens", "10,000", "default"] for line in every)
