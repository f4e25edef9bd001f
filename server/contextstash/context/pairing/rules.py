"""The judge of message lists: every rule of a provider that can be seen from the list itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextstash.context.pairing.rules_anthropic import anthropic_violations
from contextstash.context.pairing.rules_openai_chat import openai_chat_violations
from contextstash.context.pairing.rules_openai_responses import openai_responses_violations
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

RULES: dict[str, Callable[[Sequence[Native]], list[str]]] = {
    "openai-chat": openai_chat_violations,
    "openai-responses": openai_responses_violations,
    "anthropic": anthropic_violations,
}


def violations(format_name: str, natives: Sequence[Native]) -> list[str]:
    """What the provider would refuse about the list as a request, a sentence for each, naming the message.

    An empty list breaks no rule: there is nothing to send. What depends on more than the list (signatures'
    validity, preserved thinking, model limits) can't be seen here. Raises BadInputError on an unknown format.
    """
    if format_name not in RULES:
        raise BadInputError(f"There is no message format '{format_name}'. Known: {', '.join(RULES)}.")
    return RULES[format_name](natives)
