"""The key of the model that writes summaries."""

from __future__ import annotations

from collections.abc import Mapping

OWN_KEY = "CONTEXTSTASH_ANTHROPIC_API_KEY"
"""Meant for contextstash alone: whoever sets it agrees that a model is called."""

INHERITED_KEY = "ANTHROPIC_API_KEY"
"""Meant for any program, and inherited from a client: a credential, not consent."""

KEY_VARIABLES = (OWN_KEY, INHERITED_KEY)
"""The environment variables that may hold the key; the first one that is set is used."""


def api_key_from(environment: Mapping[str, str]) -> str | None:
    """The key, None if none is set. It is a secret: never logged, stored or shown."""
    name = key_variable(environment)
    return environment[name] if name else None


def key_variable(environment: Mapping[str, str]) -> str | None:
    """The name of the variable that the key comes from, None if none is set."""
    return next((name for name in KEY_VARIABLES if is_key(environment.get(name))), None)


def is_key(value: str | None) -> bool:
    """Whether a variable holds a key. A client that expands `${user_config.…}` leaves it unexpanded if the user entered
    nothing."""
    return bool(value and value.strip()) and not str(value).startswith("${")
