"""Smaller structured content: the forms of any JSON value keep its structure and get smaller step by step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.gateway.names import Origin, offered_names, prefixes
from contextstash.gateway.shortened_results import as_text, is_valid, replaced_strings, smaller_forms

HANDLE = "out_abc"

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3_000),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=10), inner, max_size=30),
    max_leaves=60,
)


def kinds(value: Any) -> Any:
    """The type of a value; of an object, the types of its items by name."""
    if isinstance(value, dict):
        return {name: kinds(each) for name, each in value.items()}
    return type(value)


@given(VALUES)
def test_every_form_has_the_type_of_the_value_and_none_is_longer(value: Any) -> None:
    for form in smaller_forms(value, HANDLE):
        assert type(form) is type(value)
        assert len(as_text(form)) <= len(as_text(value))


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=5_000), max_size=15))
def test_an_object_keeps_its_names(value: dict[str, str]) -> None:
    for form in smaller_forms(value, HANDLE):
        assert kinds(form) == kinds(value)


def test_a_shortened_string_names_the_handle() -> None:
    *_, shortest = smaller_forms({"text": "x" * 10_000}, HANDLE)
    assert "9,940 characters omitted, all in out_abc" in shortest["text"]


def test_strings_are_replaced_at_every_depth() -> None:
    assert replaced_strings({"a": ["long", {"b": "long"}], "long": 1}, {"long": "short"}) == {
        "a": ["short", {"b": "short"}],
        "long": 1,
    }


@pytest.mark.parametrize(
    ("schema", "valid"),
    [
        (None, True),
        ({"type": "object"}, True),
        ({"type": "array"}, False),
        ({"type": "no such type"}, False),
        ({"$ref": "https://example.com/other.json"}, False),
    ],
)
def test_a_value_is_valid_if_its_schema_can_be_checked_and_accepts_it(
    schema: dict[str, Any] | None, valid: bool
) -> None:
    assert is_valid({}, schema) is valid


NAMES = st.lists(st.sampled_from(["read", "write", "a__read", "search", "list"]), max_size=5)


@given(st.dictionaries(st.sampled_from(["a", "b", "a b", "a_b", "é", "own"]), NAMES, max_size=6))
def test_every_name_of_every_server_is_offered_once(names: dict[str, list[str]]) -> None:
    offered = offered_names(names, prefixes(names), "__", "own")
    wanted = {Origin(server, name) for server, each in names.items() for name in each}
    assert set(offered.values()) == wanted
    assert len(offered) == len(wanted)
    for name in names.get("own", []):
        assert offered[name] == Origin("own", name)
