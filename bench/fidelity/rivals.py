"""Other packages' ways to shrink a message list, as policies: those that need no model. Each is optional; one that is
not installed is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from .baselines import STUB, Policy
from .costs import Shown
from .facts import facts_of
from .sessions import Said, prose_of, size_of, tokens_of_text

CLEARED_DOWN_TO = (10, 5, 3, 1)
"""How many results LangChain's clearing keeps, tried in this order until the view fits."""

CALL_OVERHEAD = 4
"""Tokens of a message in addition to its text, so that LangChain trims no more than it must."""


class LangChainClearing:
    """LangChain's `ClearToolUsesEdit` with ever fewer results kept, and at last `trim_messages`, at each request."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        if sum(message.tokens for message in messages) <= self._budget:
            return [Shown(message.index, message.tokens, message.facts) for message in messages]
        clearing = import_module("langchain.agents.middleware")
        core = import_module("langchain_core.messages")
        found = core.convert_to_messages([message.native for message in messages])
        for keep in CLEARED_DOWN_TO:
            if _tokens(found) <= self._budget:
                break
            edit = clearing.ClearToolUsesEdit(trigger=1, keep=keep, placeholder=STUB)
            edit.apply(found, count_tokens=_tokens)
        if _tokens(found) > self._budget:
            found = core.trim_messages(
                found,
                max_tokens=self._budget,
                token_counter=_tokens,
                strategy="last",
                include_system=True,
                start_on=("human", "ai"),
            )
        return [
            Shown(repr(native), size_of(native), facts_of(prose_of(native)))
            for native in core.convert_to_openai_messages(found)
        ]


def _tokens(found: Sequence[Any]) -> int:
    total = 0
    for message in found:
        calls = (call["args"] for call in getattr(message, "tool_calls", None) or ())
        total += tokens_of_text(message.text) + sum(tokens_of_text(repr(call)) for call in calls) + CALL_OVERHEAD
    return total


_RIVALS: dict[str, tuple[str, str, Callable[[int], Any]]] = {
    "LangChain: clear, then trim": ("langchain", "langchain", LangChainClearing),
}
"""By name: the distribution, the module, and the policy."""


def installed_rivals() -> dict[str, Policy]:
    """The rivals that are installed here, with their versions in their names."""
    found: dict[str, Policy] = {}
    for name, (distribution, _, policy) in _RIVALS.items():
        try:
            found[f"{name} ({distribution} {version(distribution)})"] = policy
        except PackageNotFoundError:
            continue
    return found
