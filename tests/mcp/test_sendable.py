"""Schemas, pages, and text that can be sent over the protocol."""

from __future__ import annotations

import json
from typing import Any

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.mcp.answers import sendable, with_whole_characters
from contextstash.mcp.resources import MAX_PAGE_CHARACTERS, bounded_page, positive
from contextstash.mcp.schemas import ShortSchema
from contextstash.operations import clipped
from contextstash.results import Estimate
from contextstash_storage.errors import BadInputError

any_text = st.text(st.characters(), max_size=20)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | any_text,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(any_text, children, max_size=4),
    max_leaves=12,
)


@given(any_json)
def test_every_converted_value_can_be_sent(value: Any) -> None:
    assert pydantic_core.from_json(pydantic_core.to_json(sendable(value))) == sendable(value)


@given(any_json)
def test_a_value_that_needs_no_change_is_the_same_object(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert sendable(value) is value


@given(st.text(max_size=200), st.integers(3, 100))
def test_clipping_keeps_head_and_tail_and_says_what_is_missing(text: str, characters: int) -> None:
    short = clipped(text, characters, "elsewhere")
    if len(text) <= characters:
        assert short == text
    else:
        assert short.startswith(text[: characters * 2 // 3])
        assert short.endswith(text[-(characters // 3) :])
        assert "elsewhere" in short


def test_absent_fields_are_not_null_in_output_schemas() -> None:
    schema = Estimate.model_json_schema(schema_generator=ShortSchema)
    assert schema["properties"]["model"]["type"] == "string"
    assert "model" not in schema["required"]


@given(any_json)
def test_a_document_with_halves_becomes_one_that_is_utf_8_and_another_stays(value: Any) -> None:
    document = json.dumps(value).encode()
    assert pydantic_core.from_json(with_whole_characters(document)) == sendable(value)


def page(sizes: list[int]) -> dict[str, Any]:
    lines = [{"seq": seq, "message": {"content": "x" * size}} for seq, size in enumerate(sizes)]
    return {"session_id": "s", "messages": lines, "total": len(sizes)}


@given(st.lists(st.integers(0, MAX_PAGE_CHARACTERS), max_size=8))
def test_pages_are_bounded_and_continue_where_the_previous_one_stopped(sizes: list[int]) -> None:
    text = bounded_page(page(sizes))
    shown = json.loads(text)
    assert len(text) < MAX_PAGE_CHARACTERS + 1_000
    assert [line["seq"] for line in shown["messages"]] == list(range(len(shown["messages"])))
    if len(shown["messages"]) < len(sizes):
        assert shown["messages"]
        assert shown["next_seq"] == len(shown["messages"])


def test_a_message_larger_than_a_page_is_named_without_its_body() -> None:
    [line] = json.loads(bounded_page(page([MAX_PAGE_CHARACTERS + 1])))["messages"]
    assert "message" not in line
    assert "too large" in line["left_out"]


@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", "9" * 30, "٣"])
def test_only_numbers_are_read_from_a_uri(value: str) -> None:
    with pytest.raises(BadInputError, match="limit must be a whole number"):
        positive("limit", value)


def test_numbers_from_a_uri_are_capped() -> None:
    assert positive("limit", "5000", most=200) == 200
