"""How clients are started behind the proxy: the model API's address for one process alone, and nothing else changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contextstash.files.regular_files import read_regular
from contextstash.hosts.install.clients import CLIENTS, Machine

ANTHROPIC = "https://api.anthropic.com"
OPENAI = "https://api.openai.com"
CHATGPT = "https://chatgpt.com"
"""The model API of Codex for users who signed in with ChatGPT (its own default)."""


@dataclass(frozen=True)
class Launch:
    """A client's process: its command, and the variables that are added to its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class LaunchedClient:
    """A client that can be started behind the proxy. `upstream` returns the model API that it would use, from its
    environment; `launch` its process for the proxy's address. `installed_as` is its name for `contextstash install`."""

    upstream: Callable[[Mapping[str, str]], str]
    launch: Callable[[str, Sequence[str], Mapping[str, str]], Launch]
    installed_as: str | None = None


def _claude(url: str, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Claude Code turns its tool search off for an unknown base URL, which makes each first request 30 KB larger."""
    search = {} if environment.get("ENABLE_TOOL_SEARCH") else {"ENABLE_TOOL_SEARCH": "true"}
    return Launch(tuple(command), {"ANTHROPIC_BASE_URL": url, **search})


def _codex(url: str, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """A provider for this run: Codex tries a WebSocket first, which the proxy does not read. The user's own provider in
    config.toml stays as it is."""
    if environment.get("OPENAI_API_KEY"):
        address, login = f"{url}/v1", 'env_key="OPENAI_API_KEY"'
    else:
        address, login = f"{url}/backend-api/codex", "requires_openai_auth=true"
    fields = f'name="contextstash",base_url="{address}",wire_api="responses",{login},supports_websockets=false'
    options = ("-c", 'model_provider="contextstash"', "-c", f"model_providers.contextstash={{{fields}}}")
    return Launch((command[0], *options, *command[1:]), {})


def _anthropic(url: str, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    return Launch(tuple(command), {"ANTHROPIC_BASE_URL": url})


def _openai(url: str, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    return Launch(tuple(command), {"OPENAI_BASE_URL": f"{url}/v1"})


def _both(url: str, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    return Launch(tuple(command), {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"})


def _base(variable: str, default: str) -> Callable[[Mapping[str, str]], str]:
    return lambda environment: _without_version(environment.get(variable) or default)


def _without_version(url: str) -> str:
    """The address that the proxy puts in front of the client's paths, which begin with the version."""
    return url.rstrip("/").removesuffix("/v1")


def _codex_upstream(environment: Mapping[str, str]) -> str:
    if environment.get("OPENAI_API_KEY"):
        return _without_version(environment.get("OPENAI_BASE_URL") or OPENAI)
    return CHATGPT


LAUNCHED: dict[str, LaunchedClient] = {
    "claude": LaunchedClient(_base("ANTHROPIC_BASE_URL", ANTHROPIC), _claude, "claude-code"),
    "codex": LaunchedClient(_codex_upstream, _codex, "codex"),
}
"""The clients that are known by the name of their program."""

OTHERS = {
    ANTHROPIC: LaunchedClient(_base("ANTHROPIC_BASE_URL", ANTHROPIC), _anthropic),
    OPENAI: LaunchedClient(_base("OPENAI_BASE_URL", OPENAI), _openai),
}
"""Any other program, by the provider whose API it uses. The proxy goes to one provider, and the program may use both:
with both SDKs' variables set, the key and the messages for the one would go to the other."""

OTHER_AT_NAMED = LaunchedClient(_base("ANTHROPIC_BASE_URL", ANTHROPIC), _both)
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
