"""Bodies are read exactly as they were stored, whatever they contain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from contextstash_storage.codec.bodies import body_of, to_bytes
from tests.support.json_values import json_objects


@given(json_objects)
def test_any_body_comes_back_equal_key_order_included(body: dict[str, Any]) -> None:
    assert json.dumps(body_of(to_bytes(body))) == json.dumps(body)


@pytest.mark.parametrize(
    "value", [10**400, -(2**63), 1e-320, -0.0, 1.0, "\ud800\x00", {"\x00": "\udfff"}, [], {}, None]
)
def test_a_hard_value_comes_back_as_it_was(value: Any) -> None:
    assert repr(body_of(to_bytes({"value": value}))) == repr({"value": value})
