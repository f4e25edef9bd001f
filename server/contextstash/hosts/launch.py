"""Starts clients behind the proxy: the model API's address for one process alone, and nothing else changed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contextstash.files.regular_files import read_regular
from contextstash.hosts.clients import CLIENTS, Machine

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
    """Whether the login is an API key. The file of a ChatGPT login can hold one in addition to its tokens."""
    mode = login.get("auth_mode")
    return bool(login.get("OPENAI_API_KEY")) and (mode == "apikey" if mode else not login.get("tokens"))


def _document(path: Path, parse: Any) -> Mapping[str, Any]:
    """The file's content; nothing if it cannot be read. Codex itself says what is wrong with it."""
    try:
        found = parse(read_regular(path).decode())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com"


@dataclass(frozen=True)
class Launch:
    """A client's process: its command, and the variables that are added to its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class LaunchedClient:
    """A client that can be started behind the proxy. `upstream` returns the model API that it would use, from its
    environment; `launch` its process for the proxy's address, its command, its environment and the model API.
    `installed_as` is its name for `contextstash install`."""

    upstream: Callable[[Mapping[str, str]], str]
    launch: Callable[[str, Sequence[str], Mapping[str, str], str], Launch]
    installed_as: str | None = None


def _claude(url: str, command: Sequence[str], environment: Mapping[str, str], upstream: str) -> Launch:
    """Behind another host than the vendor's, Claude Code (2.1.197) turns its tool search off, which makes each first
    request 30 KB larger, uses 200,000 tokens of a window of a million, and streams the inputs of tools whole. If the
    model API is the vendor's own, it is told so. The first variable is documented; the second is not, but no other
    keeps the windows: CLAUDE_CODE_MAX_CONTEXT_TOKENS counts only for models of other vendors (seen in 2.1.197)."""
    added = {"ANTHROPIC_BASE_URL": url}
    if upstream == ANTHROPIC:
        kept = {"ENABLE_TOOL_SEARCH": "true", "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL": "1"}
        added |= {name: value for name, value in kept.items() if name not in environment}
    return Launch(tuple(command), added)


def _codex(url: str, command: Sequence[str], environment: Mapping[str, str], upstream: str) -> Launch:
    """The built-in provider at another address: with a provider of another name Codex would not let OpenAI compact, and
    its list of sessions to resume would be empty. A provider that the user chose keeps its name too."""
    provider = codex_provider(environment)
    option = f"{provider.setting}={json.dumps(url + urlsplit(provider.base_url).path.rstrip('/'))}"
    return Launch((command[0], "-c", option, *command[1:]), {})


SDK_VARIABLES = {"ANTHROPIC_BASE_URL": "", "OPENAI_BASE_URL": "/v1"}
"""The variables of the providers' SDKs, and what follows the address in them."""


def _other(variable: str, default: str, *variables: str) -> LaunchedClient:
    """A program whose model API is at the address in a variable, and which gets the proxy's address in these."""

    def launch(url: str, command: Sequence[str], environment: Mapping[str, str], upstream: str) -> Launch:
        return Launch(tuple(command), {name: url + SDK_VARIABLES[name] for name in variables})

    return LaunchedClient(_base(variable, default), launch)


def _base(variable: str, default: str) -> Callable[[Mapping[str, str]], str]:
    return lambda environment: _without_version(environment.get(variable) or default)


def _without_version(url: str) -> str:
    """The address that the proxy puts in front of the client's paths, which begin with the version."""
    return url.rstrip("/").removesuffix("/v1")


def _codex_upstream(environment: Mapping[str, str]) -> str:
    parts = urlsplit(codex_provider(environment).base_url)
    return f"{parts.scheme}://{parts.netloc}"


LAUNCHED: dict[str, LaunchedClient] = {
    "claude": LaunchedClient(_base("ANTHROPIC_BASE_URL", ANTHROPIC), _claude, "claude-code"),
    "codex": LaunchedClient(_codex_upstream, _codex, "codex"),
}
"""The clients that are known by the name of their program."""

OTHERS = {
    ANTHROPIC: _other("ANTHROPIC_BASE_URL", ANTHROPIC, "ANTHROPIC_BASE_URL"),
    OPENAI: _other("OPENAI_BASE_URL", OPENAI, "OPENAI_BASE_URL"),
}
"""Any other program, by the provider whose API it uses. The proxy goes to one provider, and the program may use both:
with both SDKs' variables set, the key and the messages for the one would go to the other."""

OTHER_AT_NAMED = _other("ANTHROPIC_BASE_URL", ANTHROPIC, *SDK_VARIABLES)
"""Any other program at an address that the user named, which is a provider of neither: both variables are set."""


def launched_client(program: str, upstream: str | None = None) -> LaunchedClient:
    """The client of a program, by its name or path. `upstream` is the model API, if the user named one."""
    known = LAUNCHED.get(Path(program).name.removesuffix(".exe"))
    return known or OTHERS.get(_without_version(upstream or ANTHROPIC), OTHER_AT_NAMED)


def is_configured(client: LaunchedClient, arguments: Sequence[str], machine: Machine) -> bool:
    """Whether our server is configured in the client, by its files or by its arguments. True for unknown clients."""
    if client.installed_as is None or any(_argument_names_us(argument) for argument in arguments):
        return True
    return any(_names_us(file(machine)) for file in CLIENTS[client.installed_as].files.values())


def _argument_names_us(argument: str) -> bool:
    """Whether an argument, or the file of servers that it names, holds our server."""
    return "contextstash" in argument or (argument.endswith(".json") and _names_us(Path(argument)))


def _names_us(path: Path) -> bool:
    try:
        return b"contextstash" in read_regular(path)
    except OSError:
        return False
