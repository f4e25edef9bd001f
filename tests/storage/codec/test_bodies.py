"""Bodies are read exactly as they were stored, whatever they contain; large strings are stored once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.codec.bodies import (
    CONSTANT,
    LARGE_STRING,
    packed_text,
    put_together,
    take_apart,
    unpacked_text,
)
from tests.support.json_values import json_objects

characters = st.characters(codec=None)
large = st.text(characters, min_size=1, max_size=5).map(lambda piece: piece * (LARGE_STRING // len(piece) + 1))


def stored_and_read(body: dict[str, Any]) -> Any:
    parts = take_apart(body)
    return put_together(
        CONSTANT.packed(parts.rest), [(json.dumps(blob.path), packed_text(blob.text)) for blob in parts.blobs]
    )


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=False)


@given(json_objects, st.dictionaries(st.text(characters, max_size=3), st.one_of(large, st.lists(large, max_size=3))))
def test_any_body_comes_back_equal_key_order_included(small: dict[str, Any], big: dict[str, Any]) -> None:
    body = {**small, "nested": [big, {"deeper": big}], **big}
    assert as_text(stored_and_read(body)) == as_text(body)


@pytest.mark.parametrize(
    "value", [10**400, -(2**63), 1e-320, -0.0, 1.0, "\ud800\x00", {"\x00": "\udfff"}, [], {}, None]
)
def test_a_hard_value_comes_back_as_it_was(value: Any) -> None:
    assert repr(stored_and_read({"value": value})) == repr({"value": value})


def test_only_strings_over_the_limit_are_taken_out() -> None:
    parts = take_apart({"at": "x" * LARGE_STRING, "over": "x" * (LARGE_STRING + 1)})
    assert [blob.path for blob in parts.blobs] == [("over",)]


@given(st.text(characters))
def test_any_text_survives_packing(text: str) -> None:
    assert unpacked_text(packed_text(text)) == text
