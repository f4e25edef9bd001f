"""Pages of an archived output: bounded, complete, and searchable without hanging."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contextstash.outputs.paging import page, snippet
from contextstash_storage.errors import BadInputError
from tests.support.turns import laws, quarter

LOG = "".join(f"line {number}: {'error' if number % 50 == 0 else 'fine'}\n" for number in range(1, 1_001))


def byte_tokens(text: str) -> int:
    """The worst case of a counter: one token for each byte."""
    return len(text.encode("utf-8", "surrogatepass"))


odd_text = st.text(st.sampled_from("ab \r\n\n\0\ud800\udc00é漢😀") | st.characters(), max_size=2_000)


@laws
@given(odd_text, st.lists(st.integers(4, 90), min_size=1, max_size=5))
@example("head\n" + "0123456789" * 100_000 + "\ntail", [8_000])
def test_pages_of_any_sizes_keep_them_and_join_to_the_original(text: str, sizes: list[int]) -> None:
    shown, offset, turn = "", None, 0
    while turn == 0 or offset is not None:
        most = sizes[turn % len(sizes)]
        result = page(text, offset=offset, max_tokens=most, count=byte_tokens)
        assert byte_tokens(result.text) <= most
        shown, offset, turn = shown + result.text, result.next_offset, turn + 1
    assert shown == text


def test_a_page_names_its_lines_and_the_next_offset() -> None:
    first = page(LOG, max_tokens=100, count=quarter)
    last = first.text.count("\n")
    assert (first.next_offset, first.total_lines) == (last + 1, 1_000)
    assert first.note == f"Lines 1 to {last} of 1,000. The rest from offset {last + 1}."
    assert " of line 1, which is too long for one page. The rest " in str(page("a" * 900, max_tokens=60, count=quarter))


def test_a_negative_offset_counts_from_the_end_and_limit_counts_lines() -> None:
    assert page(LOG, offset=-2, max_tokens=100, count=quarter).text == "line 999: fine\nline 1000: error\n"
    two = page(LOG, offset=10, limit=2, max_tokens=100, count=quarter)
    assert two.text == "line 10: fine\nline 11: fine\n"
    assert two.next_offset == 12


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"offset": 1_001}, "1,000 lines"),
        ({"pattern": "main("}, r"pass main\\\("),
        *(({"pattern": wrong}, "pattern") for wrong in ("", "a" * 1_001, "(?:" * 400 + "a" + ")" * 400)),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_no_page_can_answer_is_refused_with_what_to_change(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        page(LOG, **{"max_tokens": 50, "count": byte_tokens, **asked})


def test_a_pattern_shows_matching_lines_with_numbers_and_two_lines_around() -> None:
    found = page(LOG, offset=40, limit=1, pattern=r"error$", max_tokens=200, count=quarter)
    assert found.text == ("48-line 48: fine\n49-line 49: fine\n50:line 50: error\n51-line 51: fine\n52-line 52: fine")
    assert found.next_offset == 100


@laws
@given(odd_text, st.sampled_from(["a", "[^x]", "b$", "^", r"\s", "漢|é"]), st.integers(50, 200))
def test_a_page_of_matches_keeps_within_its_limit_and_advances(text: str, pattern: str, most: int) -> None:
    offset, seen = None, 0
    while True:
        found = page(text, offset=offset, pattern=pattern, max_tokens=most, count=byte_tokens)
        assert byte_tokens(found.text) <= most
        if found.next_offset is None:
            break
        assert found.next_offset > seen
        offset = seen = found.next_offset


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", r"(x+x+)+y"])
def test_a_pattern_that_backtracks_is_refused_with_advice(pattern: str) -> None:
    text = ("a" * 60 + "! " + "x" * 60 + "\n") * 2_000
    with pytest.raises(BadInputError, match="simpler"):
        page(text, pattern=pattern, max_tokens=200, count=quarter)


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


@laws
@given(st.text(max_size=2_000), st.lists(st.text(max_size=20), max_size=5), st.integers(0, 300))
def test_a_snippet_is_one_printable_line_within_its_limit(text: str, terms: list[str], most: int) -> None:
    shown, matched = snippet(text, terms, most)
    assert len(shown) <= most
    assert not any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in shown)
    assert all(any(found in term for term in terms) for found in matched)  # a term, or a word of one


def test_many_absent_words_in_five_megabytes_take_seconds_not_a_minute() -> None:
    text = "lorem ipsum dolor sit amet walrus " * 150_000
    started = time.process_time()
    _, matched = snippet(text, [f"absent{number}word" for number in range(60)] + ["walrus"])
    assert matched == ["walrus"]
    assert time.process_time() - started < 10  # seconds; 1.5 here, 61 with patterns


@pytest.mark.parametrize(
    ("text", "terms", "matched"),
    [
        ("It was configured by parse_config.", ["configuring", "config-parse"], ["configuring", "config", "parse"]),
        ("错误发生在数据库连接", ["数据库"], ["数据库"]),
        ("alpha beta", ["gamma"], []),
        ("We rent a house of 64 rooms.", ["ENT-64"], ["64"]),
        ("See ent-64 for this.", ["ENT-64"], ["ENT-64"]),
        ("func TestShadowStrategy_Rewind(t) of the alphabet", ["shadow", "bet"], ["shadow"]),
    ],
)
def test_a_term_is_found_as_it_is_by_its_stem_or_by_its_words(text: str, terms: list[str], matched: list[str]) -> None:
    assert snippet(text, terms) == (text, matched)
