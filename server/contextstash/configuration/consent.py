"""Consent: whether sessions may be sent from this machine under some settings, and where to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from contextstash.configuration.api_key import INHERITED_KEY, key_variable
from contextstash.configuration.setting_layers import Configuration

DEFAULT_HOST = "api.anthropic.com"


@dataclass(frozen=True)
class NetworkUse:
    """Whether sessions may be sent, in a sentence for the user, and further sentences."""

    may_leave: bool
    sentence: str
    detail: str = ""


def network_use(found: Configuration, environment: Mapping[str, str], agent: str | None = None) -> NetworkUse:
    """Whether sessions of an agent may be sent."""
    from contextstash.window.settings import resolve_settings

    settings = resolve_settings(found.settings_layer(agent))
    consent, key = found.consent(agent), key_variable(environment)
    if consent is None:
        unused = f"{INHERITED_KEY} is set but not used: no setting of yours allows model calls."
        return NetworkUse(False, "Nothing leaves this machine.", unused if key else "")
    if key is None and settings.summarizer_base_url is None:
        unused = f"Model calls are allowed ({consent}), but no key and no address are set."
        return NetworkUse(False, "Nothing leaves this machine.", unused)
    address = settings.summarizer_base_url or environment.get("ANTHROPIC_BASE_URL") or f"https://{DEFAULT_HOST}"
    sentence = f"Sessions may be sent to {host_of(address)} (model {settings.summarizer_model}): allowed by {consent}."
    return NetworkUse(True, sentence)


def host_of(address: str) -> str:
    """Host and port of an address, never the user, password or path in it."""
    try:
        parts = urlsplit(address)
        return f"{parts.hostname or 'an unreadable address'}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "an unreadable address"


def without_credentials(value: Any) -> Any:
    """A setting's value for display: an address without its user and password."""
    if not isinstance(value, str) or "://" not in value:
        return value
    scheme, _, rest = value.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"
