"""Values that JSON would not bring back equal are refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.base.json_values import MAX_LEVELS, NotJsonError, check_json


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_in_json_is_refused_by_name(value: Any) -> None:
    with pytest.raises(NotJsonError, match=str(value)):
        check_json({"value": value})


@pytest.mark.parametrize(
    ("value", "name"), [((1, 2), "tuple"), ({1: 2}, "int"), ({None: 2}, "NoneType"), (b"x", "bytes"), ({1}, "set")]
)
def test_what_json_would_change_or_does_not_have_is_refused_by_its_type(value: Any, name: str) -> None:
    with pytest.raises(NotJsonError, match=f"of type {name}"):
        check_json({"value": [value]})


def test_a_value_nested_too_deep_is_refused_with_words() -> None:
    deep: Any = "core"
    for _ in range(MAX_LEVELS + 1):
        deep = [deep]
    with pytest.raises(NotJsonError, match="200 levels"):
        check_json({"deep": deep})
