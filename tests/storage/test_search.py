"""Search finds messages and outputs, whatever characters the query contains. A call and its output are one hit, the
fullest output first, repeated ones left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash_storage import search, sqlite
from contextstash_storage.documents import MAX_CHARACTERS, Document, TextKind, documents
from contextstash_storage.records import Block, BlockType, NewMessage
from contextstash_storage.store import SessionStore
from tests.support.effort import examples
from tests.support.stored_sessions import SESSION, answers, calls, new_session, record, says


async def found(store: SessionStore, query: str, **where: Any) -> list[int]:
    return [hit.seq for hit in await store.search(query, **where)]


async def test_what_holds_all_terms_comes_before_what_holds_some(store: SessionStore) -> None:
    await record(store, says("the parser parser parser"), says("the tokenizer"), says("the parser of the tokenizer"))
    hits = await found(store, "parser tokenizer")
    assert (hits[0], sorted(hits)) == (2, [0, 1, 2])
    assert await found(store, "parser tokenizer", limit=1) == [2]


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
    [hit] = await store.search("needle", scope="outputs")
    assert (hit.handles, hit.role) == (("out_a",), "tool")


async def test_a_search_stays_in_its_session_and_always_with_its_owner(store: SessionStore) -> None:
    await new_session(store, "two")
    await record(store, says("needle"))
    await record(store, says("needle"), session_id="two")
    assert {hit.session_id for hit in await store.search("needle")} == {SESSION, "two"}
    assert {hit.session_id for hit in await store.search("needle", session_ids=["two"])} == {"two"}
    assert await store.for_owner("another").search("needle") == []


async def test_no_number_of_better_matches_of_another_owner_hides_ones_own(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MATCHES", 2)
    monkeypatch.setattr(sqlite, "MORE_MATCHES", 4)
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


@pytest.mark.parametrize("better", [10, 2])
async def test_matches_of_other_sessions_that_rank_better_do_not_hide_those_of_a_large_one(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, better: int
) -> None:
    monkeypatch.setattr(search, "MATCHES", 9)
    hay = "in so much hay " * 40
    own = [(calls(f"call_{number}", "ls"), answers(f"call_{number}", f"needle {hay}")) for number in range(8)]
    await record(store, says(f"a needle {hay}"), *(message for pair in own for message in pair))
    await new_session(store, "small")
    await record(store, *(says(f"needle needle {number}") for number in range(better)), session_id="small")
    assert await found(store, "needle", session_ids=[SESSION], scope="messages") == [0]
    assert 16 in await found(store, "needle", session_ids=[SESSION], scope="outputs")  # the newest of equal ones


async def test_what_is_weighed_down_comes_behind_what_is_not(store: SessionStore) -> None:
    await record(store, says("parser parser parser"), says("parser and hay"), says("one parser among much more hay"))
    first, *rest = await found(store, "parser")
    assert await found(store, "parser", weigh=lambda _, seq: 0.1 if seq == first else 1.0) == [*rest, first]
    assert await found(store, "parser", limit=1, weigh=lambda _, seq: 0.1 if seq == first else 1.0) == rest[:1]


LINES = [f"line {number} of the module, with enough in it" for number in range(40)]


def ran(call_id: str, tool: str, argument: str, text: str) -> list[NewMessage]:
    return [calls(call_id, argument, tool), answers(call_id, text, f"out_{call_id}", tool, argument)]


async def handles(store: SessionStore, query: str, **where: Any) -> list[str]:
    return [(*hit.handles, f"message {hit.seq}")[0] for hit in await store.search(query, **where)]


async def test_a_call_is_found_as_its_output(store: SessionStore) -> None:
    await record(store, *ran("a", "Bash", "make release", "done"), *ran("b", "Bash", "ls", "make release"))
    [first, second] = await store.search("release")
    assert (first.handles, first.seq, first.tool) == (("out_a",), 1, "Bash")
    assert "make release" in first.text
    assert "done" in first.text
    assert second.handles == ("out_b",)


async def test_a_call_without_an_output_is_found_as_a_message(store: SessionStore) -> None:
    await record(store, calls("a", "make release"))
    assert await handles(store, "release") == ["message 0"]
    await record(store, answers("a", "done", "out_a", "Bash", "make release"))
    assert await handles(store, "release") == ["out_a"]
    assert await handles(store, "release", scope="messages") == []


async def test_of_the_outputs_of_equal_calls_the_fullest_is_first_and_what_it_holds_is_left_out(
    store: SessionStore,
) -> None:
    other = [f"{line}, which was changed since" for line in LINES[:4]]
    await record(
        store,
        *ran("part", "Read", "src/module.py", "\n".join(LINES[:5])),
        *ran("whole", "Read", "src/module.py", "\n".join(LINES)),
        *ran("later", "Read", "src/module.py", "\n".join(other)),
    )
    assert await handles(store, "src/module.py") == ["out_whole", "out_later"]


async def test_the_run_of_a_command_with_the_line_that_is_looked_for_is_found(store: SessionStore) -> None:
    """Its other lines are those of the later runs, and these are longer."""
    for run in range(8):
        lines = [*LINES, f"finished as build-{run}734451", *["and a line more in this run"] * run]
        await record(store, *ran(f"run{run}", "Bash", "make release", "\n".join(lines)))
    for run in (0, 3, 7):
        assert (await handles(store, f"build-{run}734451"))[0] == f"out_run{run}"
    assert await handles(store, "make release") == ["out_run7"]


async def test_stop_words_do_not_count_unless_there_is_nothing_else(store: SessionStore) -> None:
    await record(store, says("what is it that you did"), says("the deployment failed"))
    assert await handles(store, "what is the deployment") == ["message 1"]
    assert await handles(store, "what is it") == ["message 0"]


def long_text(characters: int) -> str:
    words = " ".join(f"word{number}" for number in range(characters // 8))
    return f"needle at the beginning\n{words}\nmiddle\n{words}\nneedle at the end"


async def test_a_long_output_is_one_hit_with_the_piece_that_matches(store: SessionStore) -> None:
    await record(store, *ran("a", "Bash", "cat log", long_text(120_000)))
    [hit] = await store.search("needle word7 end")
    assert hit.handles == ("out_a",)
    assert hit.text.endswith("needle at the end")
    assert await handles(store, "middle") == ["out_a"]


async def test_of_a_very_long_output_the_beginning_and_the_end_are_found(store: SessionStore) -> None:
    await record(store, *ran("a", "Bash", "cat log", long_text(MAX_CHARACTERS)))
    assert await handles(store, "beginning") == await handles(store, "end") == ["out_a"]
    assert await handles(store, "middle") == []


ARGUMENTS = '{"command":"cd src\\nmake all","timeout":20}'


def test_each_text_is_a_document_and_a_call_is_read_as_its_values() -> None:
    types: list[BlockType] = ["text", "image", "tool_call", "tool_result", "tool_result"]
    blocks = [Block(type=each, tool="Bash") for each in types]
    assert documents([(0, "Hello"), (2, ARGUMENTS), (3, "one"), (4, "")], blocks) == [
        Document(0, TextKind.TEXT, "Hello"),
        Document(2, TextKind.CALL, "Bash\ncd src\nmake all\n20"),
        Document(3, TextKind.OUTPUT, "one"),
        Document(4, TextKind.OUTPUT, ""),
    ]
