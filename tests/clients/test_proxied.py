"""Clients at the model API: Codex keeps its provider behind the proxy, and each compacts where it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextstash.clients.claude_code import used_window
from contextstash.clients.client import Proxied
from contextstash.clients.proxied import launched_client

URL = "http://127.0.0.1:1"


def proxied(program: str) -> Proxied:
    found = launched_client(program).proxied
    assert found is not None
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Codex, without a key or an address in the environment."""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    for name in ("CODEX_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def codex() -> tuple[str, str]:
    """The model API that Codex would use, and the option with which it is started."""
    client = proxied("/usr/bin/codex")
    command, variables = client.launch(URL, ("codex", "exec"), None)
    assert (command[0], command[1], command[3:], variables) == ("codex", "-c", ("exec",), {})
    return client.upstream(), command[2]


def test_codex_keeps_its_built_in_provider(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chatgpt = ("https://chatgpt.com", f'openai_base_url="{URL}/backend-api/codex"')
    api = ("https://api.openai.com", f'openai_base_url="{URL}/v1"')
    monkeypatch.setenv("OPENAI_API_KEY", "unused by Codex")
    assert codex() == chatgpt
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "k"}))
    assert codex() == api
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "k", "tokens": {"id_token": "t"}}))
    assert codex() == chatgpt
    monkeypatch.setenv("CODEX_API_KEY", "k")
    assert codex() == api


@pytest.mark.parametrize(
    ("config", "upstream", "option"),
    [
        ('openai_base_url = "https://eu.api.openai.com/v1"', "https://eu.api.openai.com", "openai_base_url={}/v1"),
        (
            'model_provider = "here"\n[model_providers.here]\nbase_url = "http://127.0.0.1:9/api/v3"',
            "http://127.0.0.1:9",
            "model_providers.here.base_url={}/api/v3",
        ),
        ("not = [valid", "https://chatgpt.com", "openai_base_url={}/backend-api/codex"),
    ],
)
def test_a_provider_that_the_user_chose_for_codex_stays_behind_the_proxy(
    home: Path, config: str, upstream: str, option: str
) -> None:
    (home / "config.toml").write_text(config)
    name, _, path = option.partition("={}")
    assert codex() == (upstream, f'{name}="{URL}{path}"')


LARGE_MODEL = "claude-opus-4-6"
"""A model with a window of 1,000,000 tokens."""


@pytest.mark.parametrize(
    ("model", "reported", "window"),
    [
        (None, 0, 200_000),
        (LARGE_MODEL, 200_000, 200_000),
        (LARGE_MODEL, 200_001, None),  # shows that it uses a larger one
        (f"{LARGE_MODEL}[1m]", 0, None),
        ("claude-opus-4-7", 0, None),
        ("claude-haiku-4-5-20251001", 0, 200_000),
    ],
)
def test_claude_code_uses_200000_tokens_of_models_that_it_does_not_list_as_native(
    model: str | None, reported: int, window: int | None
) -> None:
    assert used_window(model, reported) == window


@pytest.mark.parametrize(
    ("program", "options", "variables"),
    [
        ("claude", [], {"ANTHROPIC_BASE_URL": URL, "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "133000"}),
        ("codex", ["-c", "model_auto_compact_token_limit=100000"], {}),
    ],
)
def test_each_client_gets_the_size_for_one_run_in_its_own_way(
    home: Path, program: str, options: list[str], variables: dict[str, str]
) -> None:
    command, added = proxied(program).launch(URL, ("client", "own"), 100_000)
    assert list(command[-len(options) - 1 : -1]) == options
    assert (command[0], command[-1], added) == ("client", "own", variables)
