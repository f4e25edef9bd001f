"""The layers of settings outside the program: which one wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.configuration import configured_settings
from contextstash.context.settings import resolve_settings
from contextstash_storage.errors import BadInputError


@pytest.fixture
def layers(tmp_path: Path) -> dict[str, Path]:
    folders = {"user_folder": tmp_path / "user", "project": tmp_path / "project"}
    for folder in folders.values():
        folder.mkdir()
    return folders


def settings(layers: dict[str, Path], environment: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    return configured_settings(
        user_folder=layers["user_folder"],
        project=layers["project"],
        environment=environment or {},
        **options,
    )


def test_without_any_layer_nothing_is_set(layers: dict[str, Path]) -> None:
    assert settings(layers, {"PATH": "/bin", "CONTEXTSTASH_DB": "elsewhere.db"}) == {}


def test_a_project_s_file_wins_over_the_user_s(layers: dict[str, Path]) -> None:
    (layers["user_folder"] / "contextstash.toml").write_text("window = 100000\nprune_at = 0.5\n")
    (layers["project"] / "contextstash.toml").write_text("window = 50000\n")
    assert settings(layers) == {"window": 50_000, "prune_at": 0.5}


def test_the_environment_wins_over_files_and_an_option_over_the_environment(layers: dict[str, Path]) -> None:
    (layers["project"] / "contextstash.toml").write_text("prune_at = 0.5\ncompact_at = 0.6\nwindow = 9000\n")
    environment = {"CONTEXTSTASH_PRUNE_AT": "0.55", "CONTEXTSTASH_COMPACT_AT": "0.65"}
    read = settings(layers, environment, given=["compact_at=0.7"])
    resolved = resolve_settings(read)
    assert (resolved.prune_at, resolved.compact_at, resolved.window) == (0.55, 0.7, 9_000)


def test_text_is_read_as_the_setting_s_own_kind_of_value(layers: dict[str, Path]) -> None:
    environment = {"CONTEXTSTASH_AUTOMATIC": "false", "CONTEXTSTASH_WINDOW": "none"}
    resolved = resolve_settings(settings(layers, environment, given=["messages_at=30"]))
    assert (resolved.automatic, resolved.window, resolved.messages_at) == (False, None, 30)


def test_a_preset_may_come_from_any_layer(layers: dict[str, Path]) -> None:
    environment = {"CONTEXTSTASH_PRESET": "token-budget"}
    assert resolve_settings(settings(layers, environment)).prune_protect_turns == 2
    assert resolve_settings(settings(layers, environment, preset="default")).prune_protect_turns == 0


def test_a_file_that_is_not_toml_is_named(layers: dict[str, Path]) -> None:
    file = layers["project"] / "contextstash.toml"
    file.write_text("prune_at 0.5")
    with pytest.raises(BadInputError, match=r"contextstash\.toml is not valid TOML"):
        settings(layers)


def test_a_pair_without_a_value_is_refused(layers: dict[str, Path]) -> None:
    with pytest.raises(BadInputError, match="key=value"):
        settings(layers, given=["prune_at"])
