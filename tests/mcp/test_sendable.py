"""Schemas, pages, and text that can be sent over the protocol."""

from __future__ import annotations

import json
from typing import Any

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.mcp.answers import sendable, with_whole_characters
from contextstash.mcp.resources import positive
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


@given(any_json)
def test_a_document_with_halves_becomes_one_that_is_utf_8_and_another_stays(value: Any) -> None:
    document = json.dumps(value).encode()
    assert pydantic_core.from_json(with_whole_characters(document)) == sendable(value)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", "9" * 30, "٣"])
def test_only_numbers_are_read_from_a_uri(value: str) -> None:
    with pytest.raises(BadInputError, match="limit must be a whole number"):
        positive("limit", value)


def test_numbers_from_a_uri_are_capped() -> None:
    assert positive("limit", "5000", most=200) == 200
