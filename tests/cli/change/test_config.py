"""`contextstash config`: the effective settings with the layer that set each, and settings in the user's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.command_line import CommandLine, failure_of


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


def test_a_key_is_never_shown(contextstash: CommandLine) -> None:
    key = {"ANTHROPIC_API_KEY": "sk-ant-secret"}
    done = contextstash.run("config", "show", environment=key)
    assert "ANTHROPIC_API_KEY is set but not used" in done.stdout
    assert "sk-ant-secret" not in done.stdout + done.stderr


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
