"""A message's searchable text comes back exactly from references to the strings of its body."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.codec.bodies import body_of, to_bytes
from contextstash_storage.codec.text_references import referred, referring, sources
from tests.support.json_values import json_objects

lines = st.text(st.sampled_from("ab \n\u2028\x00é"), max_size=12)


@given(st.text(), st.lists(lines, max_size=6))
def test_any_text_comes_back_whatever_strings_it_can_refer_to(text: str, known: list[str]) -> None:
    for each in (text, "\n".join(known), "\n".join([text, *known, text])):
        assert referred(referring(each, known), known) == each


@given(json_objects)
def test_the_strings_of_a_body_are_the_same_when_it_is_read_again(body: dict[str, Any]) -> None:
    again = body_of(to_bytes(body))
    calls = [("Read", "a.py"), ("Bash", "")]
    assert sources(again, calls) == sources(body, calls)


def test_surrogates_that_stand_together_come_back_as_two() -> None:
    """JSON makes one character of them, in the body as well."""
    text = "first\n\ud801\udc00 pair"
    assert referred(referring(text, [text, "first"]), [json.loads(json.dumps(text)), "first"]) == text


TEXT = "\n".join(f"{number}: a line of an output" for number in range(20))


@pytest.mark.parametrize(
    ("body", "calls", "text"),
    [
        ({"role": "user", "content": TEXT}, [], TEXT),
        ({"role": "tool", "content": TEXT}, [("Read", "src/a.py")], f"Read src/a.py\n{TEXT}"),
        (
            {
                "content": [
                    {"type": "text", "text": "Let me look."},
                    {"name": "Edit", "input": {"path": "a", "new": TEXT}},
                ]
            },
            [],
            "\n".join(["Let me look.", "Edit", json.dumps({"path": "a", "new": TEXT}, separators=(",", ":"))]),
        ),
        ({"content": [{"type": "text", "text": TEXT}, {"type": "text", "text": "end"}]}, [], f"{TEXT}\nend"),
    ],
)
def test_a_text_that_is_in_the_body_takes_only_some_bytes(
    body: dict[str, Any], calls: list[tuple[str, str]], text: str
) -> None:
    known = sources(body, calls)
    stored = referring(text, known)
    assert referred(stored, known) == text
    assert len(stored) < 12


def test_a_message_of_many_equal_lines_is_compared_only_some_times() -> None:
    known = [f"same first line\n{number}" for number in range(2_000)]
    text = "\n".join(reversed(known))
    assert referred(referring(text, known), known) == text
