"""How Codex is started behind the proxy: the provider that it would use stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextstash.clients.client import Proxied
from contextstash.clients.launch import launched_client

URL = "http://127.0.0.1:1"


def proxied(program: str) -> Proxied:
    found = launched_client(program).proxied
    assert found is not None
    return found


def codex(folder: Path, **environment: str) -> tuple[str, str]:
    """The model API that Codex would use, and the option with which it is started."""
    given = {"CODEX_HOME": str(folder), **environment}
    client = proxied("/usr/bin/codex")
    launch = client.launch(URL, ("codex", "exec"), given)
    assert (launch.command[0], launch.command[1], launch.command[3:]) == ("codex", "-c", ("exec",))
    assert not launch.environment
    return client.upstream(given), launch.command[2]


def test_codex_keeps_its_built_in_provider(tmp_path: Path) -> None:
    chatgpt = ("https://chatgpt.com", f'openai_base_url="{URL}/backend-api/codex"')
    api = ("https://api.openai.com", f'openai_base_url="{URL}/v1"')
    assert codex(tmp_path) == chatgpt
    assert codex(tmp_path, OPENAI_API_KEY="unused by Codex") == chatgpt
    assert codex(tmp_path, CODEX_API_KEY="k") == api
    (tmp_path / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "k"}))
    assert codex(tmp_path) == api
    (tmp_path / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "k", "tokens": {"id_token": "t"}}))
    assert codex(tmp_path) == chatgpt


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
    tmp_path: Path, config: str, upstream: str, option: str
) -> None:
    (tmp_path / "config.toml").write_text(config)
    name, _, path = option.partition("={}")
    assert codex(tmp_path) == (upstream, f'{name}="{URL}{path}"')
