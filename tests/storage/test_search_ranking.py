"""Hits: a call and its output are one, the fullest output first, repeated ones left out; filters; long texts."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from contextstash_storage.documents import MAX_CHARACTERS
from contextstash_storage.records import Block, NewMessage, Output
from contextstash_storage.search import MAX_TERMS, SearchFilter
from contextstash_storage.store import SessionStore
from tests.support.stored_sessions import record, says

LINES = [f"line {number} of the module, with enough in it" for number in range(40)]


def call(call_id: str, tool: str, **arguments: str) -> NewMessage:
    text = json.dumps(arguments)
    block = Block(type="tool_call", call_id=call_id, tool=tool, argument=next(iter(arguments.values())), size=len(text))
    body = {"role": "assistant", "tool_calls": [{"id": call_id, "arguments": text}]}
    return NewMessage(body=body, role="assistant", blocks=(block,), texts=((0, text),))


def output(call_id: str, tool: str, argument: str, text: str) -> NewMessage:
    block = Block(type="tool_result", call_id=call_id, tool=tool, size=len(text))
    kept = Output(
        handle=f"out_{call_id}",
        seq=0,
        block=0,
        tool=tool,
        argument=argument,
        tokens=1,
        characters=len(text),
        lines=1,
        sha256="0" * 64,
    )
    return NewMessage(
        body={"role": "tool", "tool_call_id": call_id, "content": text},
        role="tool",
        kind="tool_result",
        blocks=(block,),
        outputs=(kept,),
        texts=((0, text),),
    )


def ran(call_id: str, tool: str, argument: str, text: str) -> list[NewMessage]:
    return [call(call_id, tool, command=argument), output(call_id, tool, argument, text)]


async def handles(store: SessionStore, query: str, **rest: object) -> list[str]:
    return [(*hit.handles, f"message {hit.seq}")[0] for hit in await store.search(query, SearchFilter(**rest))]  # type: ignore[arg-type]


async def test_a_call_is_found_as_its_output(store: SessionStore) -> None:
    await record(store, *ran("a", "Bash", "make release", "done"), *ran("b", "Bash", "ls", "make release"))
    [first, second] = await store.search("release")
    assert (first.handles, first.seq, first.tool) == (("out_a",), 1, "Bash")
    assert "make release" in first.text
    assert "done" in first.text
    assert second.handles == ("out_b",)


async def test_a_call_without_an_output_is_found_as_a_message(store: SessionStore) -> None:
    await record(store, call("a", "Bash", command="make release"))
    assert await handles(store, "release") == ["message 0"]
    await record(store, output("a", "Bash", "make release", "done"))
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


async def test_the_output_with_what_is_looked_for_comes_before_one_whose_long_call_only_mentions_it(
    store: SessionStore,
) -> None:
    patch = "\n".join(["src/module.py", *LINES, "load_settings is called with the folder", *LINES])
    await record(
        store,
        *ran("read", "Read", "src/settings.py", "\n".join([*LINES, "def load_settings(folder):", *LINES])),
        *ran("patch", "apply_patch", patch, "Success. " * 30),
    )
    assert await handles(store, "where is load_settings for the folder defined") == ["out_read", "out_patch"]


async def test_of_a_query_with_more_words_than_are_looked_for_its_names_are(store: SessionStore) -> None:
    await record(store, says("the retry_budget of the client"), says("nothing of this"))
    words = " ".join(f"word{chr(97 + place // 26)}{chr(97 + place % 26)}" for place in range(MAX_TERMS))
    assert await handles(store, f"{words} retry_budget") == ["message 0"]


QUESTION = "why does the linter complain in the remote pipeline but not locally"


async def test_a_question_finds_what_was_said_before_calls_with_one_of_its_words(store: SessionStore) -> None:
    await record(
        store,
        says("It complains in the remote pipeline, I see nothing of that locally."),
        *ran("a", "Bash", "git remote show origin", "remote origin"),
        *ran("b", "Bash", "git remote add origin ../other", "done"),
        *(message for run in range(9) for message in ran(f"other{run}", "Bash", f"make check-{run}", f"{run} passed")),
    )
    assert (await handles(store, QUESTION))[0] == "message 0"


@pytest.mark.parametrize("name", ["parse_config", "quince"])
async def test_a_name_or_one_word_finds_the_call_with_it_before_what_was_said_of_it(
    store: SessionStore, name: str
) -> None:
    await record(store, says(f"{name} is wrong"), *ran("a", "Grep", name, f"def {name}(path):"))
    assert await handles(store, name) == ["out_a", "message 0"]


async def test_stop_words_do_not_count_unless_there_is_nothing_else(store: SessionStore) -> None:
    await record(store, says("what is it that you did"), says("the deployment failed"))
    assert await handles(store, "what is the deployment") == ["message 1"]
    assert await handles(store, "what is it") == ["message 0"]


async def test_a_time_restricts_a_search(store: SessionStore) -> None:
    early, late = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 3, tzinfo=UTC)
    messages = [*ran("a", "Bash", "needle", "x"), *ran("b", "Bash", "needle too", "y")]
    times = [early, early, late, late]
    await record(
        store,
        *(message.model_copy(update={"created_at": time}) for message, time in zip(messages, times, strict=True)),
    )
    assert await handles(store, "needle", after=late) == ["out_b"]
    assert sorted(await handles(store, "needle", after=early)) == ["out_a", "out_b"]


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
