"""Which model API Codex would use: that of its built-in provider, or of one that the user chose in `config.toml`.

Source: `codex-rs/model-provider-info`, and version 0.169 as it ran. The key in `openai_base_url` moves the built-in
provider and keeps its name; the variable OPENAI_BASE_URL is deprecated.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextstash.files.regular_files import read_regular

BUILT_IN = "openai"
API_BASE = "https://api.openai.com/v1"
CHATGPT_BASE = "https://chatgpt.com/backend-api/codex"
"""The built-in provider's addresses: with an API key, and for users who signed in with ChatGPT."""


@dataclass(frozen=True)
class CodexProvider:
    """The address of a provider, and the setting that replaces it."""

    base_url: str
    setting: str


def codex_provider(environment: Mapping[str, str]) -> CodexProvider:
    """The provider that Codex would use with this environment. What a profile or an option of its own sets is not
    seen."""
    folder = Path(environment.get("CODEX_HOME") or Path.home() / ".codex")
    settings = _document(folder / "config.toml", tomllib.loads)
    name = settings.get("model_provider")
    chosen = settings.get("model_providers")
    own = chosen.get(name) if isinstance(chosen, dict) and isinstance(name, str) and name != BUILT_IN else None
    if isinstance(own, dict) and isinstance(own.get("base_url"), str):
        return CodexProvider(own["base_url"], f"model_providers.{name}.base_url")
    given = settings.get("openai_base_url") or environment.get("OPENAI_BASE_URL")
    if isinstance(given, str) and given:
        return CodexProvider(given, "openai_base_url")
    has_key = environment.get("CODEX_API_KEY") or _has_key(_document(folder / "auth.json", json.loads))
    return CodexProvider(API_BASE if has_key else CHATGPT_BASE, "openai_base_url")


def _has_key(login: Mapping[str, Any]) -> bool:
    """Whether the login is an API key. The file of a ChatGPT login can hold one too, beside its tokens."""
    mode = login.get("auth_mode")
    return bool(login.get("OPENAI_API_KEY")) and (mode == "apikey" if mode else not login.get("tokens"))


def _document(path: Path, parse: Any) -> Mapping[str, Any]:
    """The file's content; nothing if it cannot be read. Codex itself says what is wrong with it."""
    try:
        found = parse(read_regular(path).decode())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
