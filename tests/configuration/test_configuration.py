"""The layers of settings outside the program: which one wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.configuration.setting_layers import Configuration, configuration
from contextstash.configuration.settings_files import TrustedFiles
from contextstash.window.settings import resolve_settings
from contextstash_storage.errors import BadInputError


@pytest.fixture
def layers(tmp_path: Path) -> dict[str, Path]:
    folders = {"user_folder": tmp_path / "user", "project": tmp_path / "project"}
    for folder in folders.values():
        folder.mkdir()
    return folders


def configured(layers: dict[str, Path], environment: dict[str, str] | None = None, **options: Any) -> Configuration:
    """The configuration, with all files of the project accepted."""
    for path in layers["project"].rglob("*.*"):
        TrustedFiles(layers["user_folder"]).add(path, path.read_text())
    return configuration(
        user_folder=layers["user_folder"],
        project=layers["project"],
        environment=environment or {},
        **options,
    )


def settings(layers: dict[str, Path], environment: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    return configured(layers, environment, **options).settings_layer()


def test_without_any_layer_nothing_is_set(layers: dict[str, Path]) -> None:
    assert settings(layers, {"PATH": "/bin", "CONTEXTSTASH_DB": "elsewhere.db"}) == {}


def test_a_project_s_file_wins_over_the_user_s(layers: dict[str, Path]) -> None:
    (layers["user_folder"] / "contextstash.toml").write_text("window = 100000\nprune_at = 0.5\n")
    (layers["project"] / "contextstash.toml").write_text("window = 50000\n")
    assert settings(layers) == {"window": 50_000, "prune_at": 0.5}


def test_the_environment_wins_over_files_and_an_option_over_the_environment(layers: dict[str, Path]) -> None:
    (layers["project"] / "contextstash.toml").write_text("prune_at = 0.5\ncompact_at = 0.6\nwindow = 90000\n")
    environment = {"CONTEXTSTASH_PRUNE_AT": "0.55", "CONTEXTSTASH_COMPACT_AT": "0.65"}
    read = settings(layers, environment, given=["compact_at=0.7"])
    resolved = resolve_settings(read)
    assert (resolved.prune_at, resolved.compact_at, resolved.window) == (0.55, 0.7, 90_000)


def test_text_is_read_as_the_setting_s_own_kind_of_value(layers: dict[str, Path]) -> None:
    environment = {"CONTEXTSTASH_AUTOMATIC": "false", "CONTEXTSTASH_WINDOW": "none"}
    resolved = resolve_settings(settings(layers, environment, given=["messages_at=30", "tokens_at=50k"]))
    assert (resolved.automatic, resolved.window, resolved.messages_at) == (False, None, 30)
    assert resolved.tokens_at == 50_000


def test_a_preset_may_come_from_any_layer(layers: dict[str, Path]) -> None:
    environment = {"CONTEXTSTASH_PRESET": "token-budget"}
    assert resolve_settings(settings(layers, environment)).prune_protect_turns == 2
    assert resolve_settings(settings(layers, environment, preset="default")).prune_protect_turns == 0


@pytest.mark.parametrize("text", ["prune_at 0.5", "window = " + "1" * 5_000, "window = " + "[" * 5_000])
def test_a_file_of_the_user_that_is_not_toml_is_named(layers: dict[str, Path], text: str) -> None:
    file = layers["user_folder"] / "contextstash.toml"
    file.write_text(text)
    with pytest.raises(BadInputError, match=r"contextstash\.toml is not valid TOML"):
        settings(layers)


def test_a_pair_without_a_value_is_refused(layers: dict[str, Path]) -> None:
    with pytest.raises(BadInputError, match="key=value"):
        settings(layers, given=["prune_at"])


def agent_file(layers: dict[str, Path], name: str, text: str, folder: str = "project") -> None:
    (layers[folder] / "agents").mkdir(exist_ok=True)
    (layers[folder] / "agents" / name).write_text(text)


def test_each_agent_has_its_own_thresholds_under_context_in_its_own_file(layers: dict[str, Path]) -> None:
    agent_file(
        layers, "quick.yaml", "name: quick\nmodel: {provider: any}\ncontext:\n  messages_at: 15\n  tokens_at: 32_000\n"
    )
    agent_file(layers, "researcher.yaml", "messages_at: 50\ntokens_at: 180000\n")
    found = configured(layers, preset="n-or-k")
    numbers = {
        agent: (
            resolve_settings(found.settings_layer(agent)).messages_at,
            resolve_settings(found.settings_layer(agent)).tokens_at,
        )
        for agent in ("quick", "researcher", "another", None)
    }
    assert numbers == {
        "quick": (15, 32_000),
        "researcher": (50, 180_000),
        "another": (30, 128_000),
        None: (30, 128_000),
    }


def test_an_agents_layers_lie_over_the_files_and_under_the_environment(layers: dict[str, Path]) -> None:
    for folder, window in (("user_folder", 4), ("project", 5)):
        (layers[folder] / "contextstash.toml").write_text(f"window = {window}0000\n")
    agent_file(layers, "quick.yml", "compact_at: 0.6\nprune_at: 0.4", "user_folder")
    agent_file(layers, "quick.yaml", "compact_at: 0.7")
    found = configured(layers, {"CONTEXTSTASH_PRUNE_AT": "0.5"})
    read = resolve_settings(found.settings_layer("quick"))
    assert (read.window, read.compact_at, read.prune_at) == (50_000, 0.7, 0.5)
    assert [layer.name.rsplit("/", 1)[-1] for layer in found.layers("quick")] == [
        "contextstash.toml",
        "contextstash.toml",
        "quick.yml",
        "quick.yaml",
        "environment",
    ]


def test_none_takes_a_presets_value_back(layers: dict[str, Path]) -> None:
    agent_file(layers, "endless.yaml", "preset: n-or-k\nmessages_at: null\n")
    assert resolve_settings(configured(layers).settings_layer("endless")).messages_at is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mesages_at: 3", "Did you mean 'messages_at'"),
        ("context: [1]", "must hold settings"),
        ("- 1", "must hold settings"),
        ("a: [", "not valid YAML"),
        ("window: !!python/object:os.system {}", "not valid YAML"),
    ],
)
def test_a_wrong_agents_file_is_named_with_what_is_wrong(layers: dict[str, Path], text: str, says: str) -> None:
    agent_file(layers, "quick.yaml", text, "user_folder")
    with pytest.raises(BadInputError, match=says) as raised:
        configured(layers).settings_layer("quick")
    assert "quick.yaml" in str(raised.value)


@pytest.mark.parametrize("agent", ["../quick", "a/b", "..", ".hidden", "c:quick", ""])
def test_an_agents_name_leads_to_no_other_folder(layers: dict[str, Path], agent: str) -> None:
    (layers["project"] / "quick.yaml").write_text("window: 1000")
    assert configured(layers).settings_layer(agent) == {}
