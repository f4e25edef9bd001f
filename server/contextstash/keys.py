"""Where the key of the model that writes summaries comes from."""

from __future__ import annotations

from collections.abc import Mapping

KEY_VARIABLES = ("CONTEXTSTASH_ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY")
"""The environment variables looked into, the first that is set counts."""


def api_key_from(environment: Mapping[str, str]) -> str | None:
    """The key, None where none is set. It is a secret: never logged, stored or shown."""
    return next((environment[name] for name in KEY_VARIABLES if environment.get(name)), None)
