"""Laws of stripping: for generated Anthropic conversations with thinking, edited and cut at any allowed position."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.messages.detection import get_format
from contextstash.messages.rules import render, safe_cuts
from contextstash.session.edit import stripping_of
from contextstash_storage.records import Native
from tests.support.conversations import as_messages, conversations
from tests.support.effort import examples
from tests.support.provider_rules import violations

ANTHROPIC = get_format("anthropic")
THINKING = ("thinking", "redacted_thinking")

laws = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])


def blocks(natives: list[Native]) -> list[dict[str, Any]]:
    contents = [native["content"] for native in natives]
    return [block for content in contents if isinstance(content, list) for block in content]


def thoughts(natives: list[Native]) -> list[str]:
    return [block.get("signature") or block["data"] for block in blocks(natives) if block["type"] in THINKING]


def stripped(natives: list[Native], start: int) -> list[Native]:
    """The natives without thinking from `start` on, as the view shows them."""
    left = [ANTHROPIC.without_thinking(native) for native in natives[start:]]
    return [*natives[:start], *(native for native in left if native is not None)]


@laws
@given(st.data())
def test_after_any_edit_the_thinking_left_is_an_unbroken_run_from_the_start(data: st.DataObject) -> None:
    natives = data.draw(conversations("anthropic"))
    messages = as_messages("anthropic", natives)
    first = data.draw(st.integers(0, len(natives) - 1))
    effect = stripping_of(messages, first, bound=True, needed=True)
    shown = stripped(natives, first) if effect.choice == "strip" else natives
    all_of_it, left = thoughts(natives), thoughts(shown)
    assert left == all_of_it[: len(left)]
    assert violations("anthropic", render(ANTHROPIC, shown)) == []
    if effect.choice == "strip":
        assert left == thoughts(natives[:first])
        assert effect.messages > 0


@laws
@given(st.data())
def test_stripping_touches_nothing_but_thinking(data: st.DataObject) -> None:
    natives = data.draw(conversations("anthropic"))
    first = data.draw(st.integers(0, len(natives)))
    shown = stripped(natives, first)
    assert [block for block in blocks(shown) if block["type"] not in THINKING] == [
        block for block in blocks(natives) if block["type"] not in THINKING
    ]


@laws
@given(st.data())
def test_after_any_cut_what_is_kept_is_valid_without_its_thinking(data: st.DataObject) -> None:
    natives = data.draw(conversations("anthropic", min_turns=2))
    messages = as_messages("anthropic", natives)
    cut = data.draw(st.sampled_from(safe_cuts(messages)))
    shown = [ANTHROPIC.user_message("Summary of what came before."), *stripped(natives, cut)[cut:]]
    assert thoughts(shown) == []
    assert violations("anthropic", render(ANTHROPIC, shown)) == []
    effect = stripping_of(messages, cut, bound=True, needed=True)
    assert bool(effect.messages) == bool(thoughts(natives[cut:]))
