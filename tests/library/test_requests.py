"""What a request holds for each provider's SDK, and which format a program speaks."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.library.session import CallArguments, plain_system, plain_tools, request_of
from contextstash.messages.detection import shown_format
from contextstash.results import ContextResult

HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
THINKING = {"thinking": {"type": "adaptive", "block_binding": {"x": "y"}}, "betas": ["binding-1"]}


def options(fmt: str, result: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    context = ContextResult(session_id="s", format=fmt, messages=HI, tokens=1, budget=9, fits=True, **(result or {}))
    return request_of(context, CallArguments(model="m", **given), reserve=25_000).options


def test_the_options_are_those_of_each_provider_s_call() -> None:
    given: dict[str, Any] = {"system": "s", "tools": [{"name": "t"}], "max_tokens": 5, "more": {"temperature": 0}}
    same = {"model": "m", "tools": [{"name": "t"}], "temperature": 0}
    assert options("anthropic", {"system": "s"}, **given) == {**same, "system": "s", "max_tokens": 5}
    assert options("openai-chat", **given) == {**same, "max_completion_tokens": 5}
    assert options("openai-responses", {"system": "s"}, **given) == {
        **same,
        "instructions": "s",
        "max_output_tokens": 5,
    }
    config = {"system_instruction": "s", "tools": [{"name": "t"}], "max_output_tokens": 5, "top_k": 1}
    gemini = options("gemini", **{**given, "more": {"config": {"top_k": 1}}})
    assert gemini == {"model": "m", "config": config}


def test_a_limit_that_the_provider_demands_is_there_without_being_named() -> None:
    assert options("anthropic") == {"model": "m", "max_tokens": 16_000}
    assert options("openai-chat") == {"model": "m"}


def test_fields_for_invalid_thinking_join_those_of_the_program() -> None:
    more = {"thinking": {"type": "enabled", "budget_tokens": 9}, "extra_headers": {"anthropic-beta": "own"}}
    found = options("anthropic", {"request": THINKING}, max_tokens=5, more=more)
    assert found["thinking"] == {"type": "enabled", "budget_tokens": 9, "block_binding": {"x": "y"}}
    assert found["extra_headers"] == {"anthropic-beta": "own,binding-1"}


def test_system_prompts_and_tools_of_every_form_are_counted() -> None:
    assert plain_system(None) is None
    assert plain_system("s") == "s"
    assert plain_system([{"type": "text", "text": "s"}]) == [{"type": "text", "text": "s"}]
    assert plain_system({"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}) == "a\n\nb"
    assert plain_tools([{"name": "t"}, len]) == [{"name": "t"}]


@pytest.mark.parametrize(
    ("beside", "fmt"),
    [
        ({}, "openai-chat"),
        ({"model": "claude-opus-4-5"}, "anthropic"),
        ({"model": "anthropic/claude-opus-4-5"}, "openai-chat"),
        ({"system": [{"type": "text", "text": "s"}]}, "anthropic"),
        ({"tools": [{"name": "t", "input_schema": {}}]}, "anthropic"),
        ({"tools": [{"type": "function", "function": {}}], "model": "claude-opus-4-5"}, "openai-chat"),
        ({"tools": [{"type": "function", "name": "t"}]}, "openai-responses"),
        ({"model": "gemini-3-pro"}, "openai-chat"),
    ],
)
def test_plain_messages_have_the_format_of_what_is_beside_them(beside: dict[str, Any], fmt: str) -> None:
    assert shown_format(HI, **beside) == fmt


def test_contents_are_gemini_s() -> None:
    assert shown_format([{"role": "user", "parts": [{"text": "hi"}]}], model="gpt-5.4") == "gemini"
