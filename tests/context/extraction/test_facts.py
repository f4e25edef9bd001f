"""Facts are found in any text, and no text makes the search slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.context.extraction.facts import find_facts
from tests.support.turns import laws

TEXT = """
Traceback in src/app/main.py: see https://example.org/docs/a?b=1.
ValueError: bad value 'left over' for parse_config()
Commit 3f2a9bc01d, issue LIB-298, #42, took 12.5 ms and 3 MB; id 123e4567-e89b-12d3-a456-426614174000
The class HttpClient calls pool.acquire in ./lib/pool.ts with `max_size`.
"""


def test_each_kind_of_fact_is_found() -> None:
    facts = find_facts(TEXT)
    assert facts.paths == ("https://example.org/docs/a?b=1", "src/app/main.py", "./lib/pool.ts")
    assert {"parse_config", "HttpClient", "pool.acquire", "max_size"} <= set(facts.identifiers)
    assert {"left over", "max_size"} <= set(facts.quotes)
    assert facts.errors[0] == "ValueError: bad value 'left over' for parse_config()"
    assert {"3f2a9bc01d", "LIB-298", "#42", "123e4567-e89b-12d3-a456-426614174000"} <= set(facts.ids)
    assert facts.numbers == ("12.5 ms", "3 MB")


def test_prose_has_no_identifiers() -> None:
    assert find_facts("This is a plain sentence about nothing in particular.").names() == ()


def test_no_more_facts_than_the_limit_are_returned() -> None:
    assert len(find_facts(" ".join(f"name_{n}" for n in range(100)), most=7).identifiers) == 7


@laws
@given(st.text(max_size=500))
def test_facts_occur_in_the_text_verbatim(text: str) -> None:
    facts = find_facts(text)
    assert all(fact in text for fact in (*facts.paths, *facts.identifiers, *facts.ids, *facts.numbers))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["a", '"', "/", "a/", "a.", "-", "0f", "1,", "'a ", "http://", "\n", "Error ", "漢"])
def test_a_megabyte_of_a_repeated_unit_is_searched_quickly(unit: str) -> None:
    find_facts(unit * (1_000_000 // len(unit)))
