"""Whether anything of a session may leave this machine under some settings, and where to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from contextstash.api_key import INHERITED_KEY, key_variable
from contextstash.configuration import Configuration

DEFAULT_HOST = "api.anthropic.com"

SAMPLING = "A client that offers sampling may be asked for a summary by its own model."


@dataclass(frozen=True)
class NetworkUse:
    """What is said of it in one sentence, and what may be added."""

    may_leave: bool
    says: str
    more: str = ""


def network_use(
    found: Configuration,
    environment: Mapping[str, str],
    agent: str | None = None,
    session: Mapping[str, Any] | None = None,
) -> NetworkUse:
    """Whether sessions of an agent may leave; `session` are a session's own settings."""
    from contextstash.context.window.settings import resolve_settings, session_layer

    settings = resolve_settings(found.settings_layer(agent), session_layer(session or {}))
    consent, key = found.consent(agent), key_variable(environment)
    sampling = SAMPLING if settings.summarizer in ("auto", "sampling") else ""
    if consent is None:
        unused = f"{INHERITED_KEY} is set but not used: no setting of yours lets a model be called."
        return NetworkUse(False, "Nothing leaves this machine.", _joined(unused if key else "", sampling))
    if key is None and settings.summarizer_base_url is None:
        unused = f"A model may be called ({consent}), but there is no key and no address."
        return NetworkUse(False, "Nothing leaves this machine.", _joined(unused, sampling))
    address = settings.summarizer_base_url or environment.get("ANTHROPIC_BASE_URL") or f"https://{DEFAULT_HOST}"
    says = f"Sessions may be sent to {host_of(address)} (model {settings.summarizer_model}): you allow it by {consent}."
    return NetworkUse(True, says, sampling)


def host_of(address: str) -> str:
    """Host and port of an address: never the user, password or path that may stand in it."""
    try:
        parts = urlsplit(address)
        return f"{parts.hostname or 'an unreadable address'}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "an unreadable address"


def without_credentials(value: Any) -> Any:
    """A setting's value to be shown: of an address that holds a user and a password, neither."""
    if not isinstance(value, str) or "://" not in value:
        return value
    scheme, _, rest = value.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def key_line(found: Configuration, environment: Mapping[str, str], agent: str | None = None) -> str:
    """Where the key comes from; never the key."""
    name = key_variable(environment)
    use = "" if found.may_call_model(agent) or not name else ", not used"
    return f"Key of the model that writes summaries: {f'set by {name}{use}' if name else 'not set'}."


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))
