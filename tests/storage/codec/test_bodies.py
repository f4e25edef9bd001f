"""Bodies are read exactly as they were stored, whatever they contain; large strings are stored once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.codec.bodies import (
    LARGE_STRING,
    folded,
    packed,
    packed_text,
    put_together,
    take_apart,
    unfolded,
    unpacked_text,
)
from contextstash_storage.errors import BadMessageError
from contextstash_storage.json_values import MAX_LEVELS, NumberText
from tests.support.json_values import json_objects

characters = st.characters(codec=None)
large = st.text(characters, min_size=1, max_size=5).map(lambda piece: piece * LARGE_STRING)


def stored_and_read(body: dict[str, Any]) -> Any:
    parts = take_apart(body)
    return put_together(packed(parts.rest), [(json.dumps(blob.path), packed_text(blob.text)) for blob in parts.blobs])


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), NumberText("1E400")])
def test_what_is_no_number_in_json_is_refused_by_name(value: Any) -> None:
    with pytest.raises(BadMessageError, match=str(value)):
        stored_and_read({"value": value})


@pytest.mark.parametrize(
    ("value", "name"), [((1, 2), "tuple"), ({1: 2}, "int"), ({None: 2}, "NoneType"), (b"x", "bytes"), ({1}, "set")]
)
def test_what_json_would_change_or_does_not_have_is_refused_by_its_type(value: Any, name: str) -> None:
    with pytest.raises(BadMessageError, match=f"of type {name}"):
        stored_and_read({"value": [value]})


def test_only_strings_over_the_limit_are_taken_out() -> None:
    parts = take_apart({"at": "x" * LARGE_STRING, "over": "x" * (LARGE_STRING + 1)})
    assert [blob.path for blob in parts.blobs] == [("over",)]


def test_a_body_nested_too_deep_is_refused_with_words() -> None:
    deep: Any = "core"
    for _ in range(MAX_LEVELS + 1):
        deep = [deep]
    with pytest.raises(BadMessageError, match="200 levels"):
        take_apart({"deep": deep})


@given(st.text(characters))
def test_any_text_survives_packing(text: str) -> None:
    assert unpacked_text(packed_text(text)) == text


@given(st.lists(st.one_of(large, st.text(characters)), max_size=5))
def test_a_text_made_of_a_body_s_strings_is_stored_without_them(pieces: list[str]) -> None:
    blobs = take_apart({"pieces": pieces}).blobs
    text = "read\n" + "\n".join(pieces)
    assert unfolded(folded(text, blobs), [packed_text(blob.text) for blob in blobs]) == text


def test_a_folded_text_is_small() -> None:
    output = "".join(map(str, range(50_000)))
    assert len(folded(f"Read big.txt\n{output}", take_apart({"content": output}).blobs)) < 100
