"""Search finds messages and tool outputs, whatever characters the query contains."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash_storage import search
from contextstash_storage.errors import BadInputError
from contextstash_storage.search import SearchFilter, Weigh
from contextstash_storage.store import SessionStore
from tests.support.effort import examples
from tests.support.stored_sessions import SESSION, answers, calls, new_session, record, says


async def found(
    store: SessionStore, query: str, limit: int = 10, weigh: Weigh | None = None, **where: Any
) -> list[int]:
    return [hit.seq for hit in await store.search(query, SearchFilter(**where), limit=limit, weigh=weigh)]


async def test_what_holds_all_terms_comes_before_what_holds_some(store: SessionStore) -> None:
    await record(store, says("the parser parser parser"), says("the tokenizer"), says("the parser of the tokenizer"))
    hits = await found(store, "parser tokenizer")
    assert (hits[0], sorted(hits)) == (2, [0, 1, 2])
    assert await found(store, "parser tokenizer", limit=1) == [2]


async def test_a_text_with_all_terms_comes_first_however_many_calls_have_one_of_them(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MATCHES", 3)
    run = [message for number in range(6) for message in (calls(f"call_{number}", "parser"), says("hello"))]
    await record(store, *run, says("in a long text " * 30 + "the parser and its tokenizer"))
    assert (await found(store, "parser tokenizer"))[0] == len(run)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("error in src/app/main_window.py:42", "main_window.py"),
        ("error in src/app/main_window.py:42", "src/app/main_window.py:42"),
        ("call getUserName now", "user name"),
        ("call getUserName now", "getUserName"),
        ("call getUserName now", "getusername"),
        ("request 3f2b-77aa-9c01 failed", "3f2b-77aa-9c01"),
        ("running the tests", "run test"),
        ('{"file_path":"src/a.py","limit":20}', '{"file_path":"src/a.py"}'),
        ("Größe über alles", "grosse uber größe"),
        ("before\x00after", "after"),
        ("left \ud800 right", "right"),
    ],
)
async def test_it_is_found_by(store: SessionStore, text: str, query: str) -> None:
    await record(store, says("something else"), says(text))
    hits = await store.search(query)
    assert (hits[0].seq, hits[0].text) == (1, text)


@pytest.mark.parametrize("query", ["", "  ", '"', '""" (', "AND", "* -", "___", "\x00", "\ud800", "NEAR("])
async def test_a_query_of_operators_alone_finds_nothing_and_breaks_nothing(store: SessionStore, query: str) -> None:
    await record(store, says("hello"))
    assert await found(store, query) == []


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec=None), max_size=40))
async def test_no_query_breaks_it(store: SessionStore, query: str) -> None:
    await store.search(f"hello {query}")


async def test_scopes_tell_outputs_from_what_was_said(store: SessionStore) -> None:
    await record(store, says("where is the needle"), answers("call_0", "a needle"))
    assert await found(store, "needle", scope="outputs") == [1]
    assert await found(store, "needle", scope="messages") == [0]
    [hit] = await store.search("needle", SearchFilter(scope="outputs"))
    assert (hit.handles, hit.role) == (("out_a",), "tool")
    with pytest.raises(BadInputError, match="outputs"):
        await found(store, "needle", scope="everything")


async def test_a_search_stays_in_its_session_and_always_with_its_owner(store: SessionStore) -> None:
    await new_session(store, "two")
    await record(store, says("needle"))
    await record(store, says("needle"), session_id="two")
    assert {hit.session_id for hit in await store.search("needle")} == {SESSION, "two"}
    assert {hit.session_id for hit in await store.search("needle", SearchFilter(session_ids=["two"]))} == {"two"}
    assert await store.for_owner("another").search("needle") == []


async def test_no_number_of_better_matches_of_another_owner_hides_ones_own(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MATCHES", 2)
    monkeypatch.setattr(search, "MORE_MATCHES", 4)
    other = store.for_owner("another")
    await new_session(other, SESSION)
    await record(other, *(says(f"needle needle {number}") for number in range(8)))
    await record(store, says("a needle " + "in so much hay " * 50))
    assert await found(store, "needle") == [0]


async def test_neither_scores_nor_order_tell_how_often_others_have_a_word(store: SessionStore) -> None:
    other = store.for_owner("another")
    await new_session(other, SESSION)
    await record(other, *(says(f"this is my word {number}") for number in range(30)))
    await record(store, *(says(f"some hay and mercury {number}") for number in range(3)))
    await record(store, *(says(f"some hay and venus {number}") for number in range(4)))
    before = await store.search("mercury venus")
    await record(other, *(says(f"this is about mercury {number}") for number in range(30)))
    after = await store.search("mercury venus")
    assert [hit.seq for hit in after] == [hit.seq for hit in before]
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before], rel=1e-6)
    assert len(before) == 7


@pytest.mark.parametrize("text", ["a" * 1_000_000, "aB" * 500_000, "a.b/" * 250_000, "\x00\ud800" * 100_000])
async def test_a_text_of_one_endless_word_is_indexed_and_forgotten(store: SessionStore, text: str) -> None:
    await record(store, says(text + " needle"))
    assert await found(store, f"needle {text}") == [0]
    await store.delete_session(SESSION)
    assert await store.search("needle") == []


@pytest.mark.parametrize("scope", ["all", "outputs", "messages"])
async def test_matches_of_other_sessions_that_rank_better_do_not_hide_those_of_a_large_one(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    monkeypatch.setattr(search, "MATCHES", 9)
    hay = "in so much hay " * 40
    own = [(calls(f"call_{number}", "ls"), answers(f"call_{number}", f"needle {hay}")) for number in range(8)]
    await record(store, says(f"a needle {hay}"), *(message for pair in own for message in pair))
    await new_session(store, "small")
    await record(store, *(says(f"needle needle {number}") for number in range(10)), session_id="small")
    hits = await found(store, "needle", session_ids=[SESSION], scope=scope)
    assert (0 in hits) == (scope != "outputs")
    assert (16 in hits) == (scope != "messages")  # the newest of the equal outputs


async def test_what_is_weighed_down_comes_behind_what_is_not(store: SessionStore) -> None:
    await record(store, says("parser parser parser"), says("parser and hay"), says("one parser among much more hay"))
    first, *rest = await found(store, "parser")
    assert await found(store, "parser", weigh=lambda _, seq: 0.1 if seq == first else 1.0) == [*rest, first]
    assert await found(store, "parser", limit=1, weigh=lambda _, seq: 0.1 if seq == first else 1.0) == rest[:1]
