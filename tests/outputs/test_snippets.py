"""A snippet shows why a text matches a query, in one line of limited length."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from contextstash.outputs.snippets import snippet
from tests.support.turns import laws


def test_the_part_with_the_most_terms_is_shown() -> None:
    text = (
        "timeout here. "
        + "filler words " * 200
        + "the timeout comes from the pool size\nin config/db.yaml."
        + " end" * 200
    )
    shown, matched = snippet(text, ["timeout", "pool", "db.yaml", "absent"])
    assert "timeout comes from the pool size in config/db.yaml." in shown
    assert matched == ["timeout", "pool", "db.yaml"]
    assert shown.startswith("…")
    assert shown.endswith("…")


def test_a_name_and_a_rare_word_say_more_than_words_that_are_everywhere() -> None:
    text = "the test of the file\n" * 90 + "retry_budget = 3\n" + "the test of the file\n" * 90
    assert "retry_budget = 3" in snippet(text, ["test", "file", "retry_budget"], 100)[0]


def test_words_are_found_by_stem_and_identifiers_by_their_parts() -> None:
    shown, matched = snippet("It was configured by parse_config in main.", ["configuring", "config-parse", '"main"'])
    assert matched == ["configuring", "config", "parse", '"main"']
    assert shown == "It was configured by parse_config in main."


def test_scripts_without_spaces_are_found() -> None:
    _, matched = snippet("错误发生在数据库连接", ["数据库"])
    assert matched == ["数据库"]


def test_the_start_is_shown_if_no_term_matches() -> None:
    assert snippet("alpha beta", ["gamma"]) == ("alpha beta", [])


def test_words_inside_camel_case_names_are_found_as_the_index_finds_them() -> None:
    text = "alphabet " * 200 + "func TestShadowStrategy_Rewind(t) " + "alphabet " * 200
    shown, matched = snippet(text, ["shadow", "bet"])
    assert matched == ["shadow"]
    assert "TestShadowStrategy" in shown


@laws
@given(st.text(max_size=2_000), st.lists(st.text(max_size=20), max_size=5), st.integers(0, 300))
def test_a_snippet_is_one_printable_line_within_its_limit(text: str, terms: list[str], most: int) -> None:
    shown, matched = snippet(text, terms, most)
    assert len(shown) <= most
    assert not any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in shown)
    assert all(any(found in term for term in terms) for found in matched)  # a term, or a word of one


def test_a_letter_whose_lower_case_is_longer_moves_no_place() -> None:
    assert snippet("İ" * 400 + " the walrus sings", ["walrus"], 40)[0] == "…the walrus sings"


def test_many_absent_words_in_five_megabytes_take_seconds_not_a_minute() -> None:
    text = "lorem ipsum dolor sit amet walrus " * 150_000
    started = time.process_time()
    _, matched = snippet(text, [f"absent{number}word" for number in range(60)] + ["walrus"])
    assert matched == ["walrus"]
    assert time.process_time() - started < 10  # seconds; 1.5 here, 61 with patterns


def test_of_an_identifier_that_does_not_occur_the_words_that_do_are_named() -> None:
    assert snippet("We rent a house of 64 rooms.", ["ENT-64"])[1] == ["64"]
    assert snippet("See ent-64 for this.", ["ENT-64"])[1] == ["ENT-64"]
