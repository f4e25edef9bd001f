"""Validation of message lists, written without the code of the formats: every rule of a provider that can be checked on
the list itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native
from tests.support.provider_rules.anthropic import anthropic_violations
from tests.support.provider_rules.gemini import gemini_violations
from tests.support.provider_rules.openai import openai_chat_violations, openai_responses_violations

RULES: dict[str, Callable[[Sequence[Native]], list[str]]] = {
    "openai-chat": openai_chat_violations,
    "openai-responses": openai_responses_violations,
    "anthropic": anthropic_violations,
    "gemini": gemini_violations,
}


def violations(format_name: str, natives: Sequence[Native]) -> list[str]:
    """The reasons for which the provider would refuse the list, one sentence each that names the message.

    An empty list breaks no rule: there is nothing to send. Rules that depend on more than the list (validity of
    signatures, preserved thinking, limits of the model) are not checked. Raises BadInputError if the format is unknown.
    """
    if format_name not in RULES:
        raise BadInputError(f"There is no message format '{format_name}'. Known: {', '.join(RULES)}.")
    return RULES[format_name](natives)
