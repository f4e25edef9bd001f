"""`record_messages` with the whole conversation each time: only rewound messages leave the view. A session that begins
with plain text takes the format that its later messages show. A value that JSON round-trips badly is stored exactly, or
refused with an error that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.follow import ingest
from contextstash.record.output_archive import MAX_CHARACTERS
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Call, DeclaredVersion, Native
from tests.support.stashes import SESSION, called, counters_in_step, history, reply, stash_at, user, valid_view, view


def said(*texts: str) -> list[Native]:
    return [{"role": "user" if place % 2 == 0 else "assistant", "content": text} for place, text in enumerate(texts)]


async def test_a_rewind_into_a_summary_removes_the_summary(tmp_path: Path) -> None:
    talk = [message for turn in range(12) for message in (user(4_000 + turn), reply(4_000 + turn))]
    async with stash_at(tmp_path / "w.db", window=20_000) as stash:
        await stash.record_messages(talk, session_id=SESSION, whole=True)
        assert (await stash.compact_session(SESSION)).compacted
        await stash.record_messages([*talk[:3], reply(7)], session_id=SESSION, whole=True)
        assert await view(stash) == [*talk[:3], reply(7)]
        await counters_in_step(stash)


async def test_a_result_has_the_name_of_its_call_after_a_longer_branch_and_among_many_parallel_calls(
    stash: Stash,
) -> None:
    call, result = called(0, "Read", {"path": "a.py"}, "found")
    many = [called(number, "Read", {"path": "b.py"}, "found") for number in range(1, 600)]
    parallel = {**call, "tool_calls": [each["tool_calls"][0] for each, _ in many]}
    for talk in ([call], [parallel, *(each for _, each in many)], [call, result]):
        await stash.record_messages([*said("hi"), *talk], session_id=SESSION, whole=True)
    outputs = await stash.store.read_outputs(SESSION)
    assert [(output.tool, output.argument) for output in outputs] == [*[("Read", "b.py")] * 599, ("Read", "a.py")]


REFUSED = {
    "two identities": ({"whole": True, "batch_id": "a"}, "at most one of first_seq"),
    "a position before the beginning": ({"first_seq": -1}, "from position 0 on"),
    "a position beyond the beginning": ({"first_seq": 5}, None),
    "a position that is no number": ({"first_seq": True}, None),
    "a usage in no provider's form": ({"usage": {"none": 1}}, None),
    "a usage without a reply": ({"usage": {"input_tokens": 1, "output_tokens": 1}}, None),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_refused_batch_leaves_no_session_behind(
    stash: Stash, arguments: dict[str, Any], says: str | None
) -> None:
    with pytest.raises(BadInputError, match=says):
        await stash.record_messages(said("hi"), session_id=SESSION, **arguments)
    assert (await stash.list_sessions()).sessions == []


HEADS = [[], ["Today is day 1."], ["Today is day 2."], ["Today is day 2.", "Be kind."], [], ["Today is day 1."]]


async def test_a_system_message_that_changes_is_no_rewind_and_is_shown_as_it_is_now(stash: Stash) -> None:
    talk: list[Native] = []
    for number, texts in enumerate(HEADS):
        head: list[Native] = [{"role": "system", "content": text} for text in texts]
        talk += said(f"question {number}", f"answer {number}")
        answer = await stash.record_messages([*head, *talk], session_id=SESSION, whole=True)
        assert answer.recorded == 2
        assert await valid_view(stash, "openai-chat") == [*head, *talk]
    assert await history(stash) == talk
    versions = [version.content for version in await stash.store.read_log(SESSION, DeclaredVersion)]
    assert [[each["content"] for each in version] for version in versions] == HEADS[1:5]


CALLS_AND_RESULTS: dict[str, tuple[list[Native], list[Native]]] = {
    "anthropic": (
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a zebra"}]}],
    ),
    "openai-chat": (called(1, "look", {}, "a zebra")[:1], called(1, "look", {}, "a zebra")[1:]),
    "openai-responses": (
        [
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        ],
        [{"type": "function_call_output", "call_id": "c1", "output": "a zebra"}],
    ),
    "gemini": (
        [{"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}],
        [{"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "a zebra"}}}]}],
    ),
}


@pytest.mark.parametrize("format", CALLS_AND_RESULTS)
async def test_a_list_without_the_reply_that_its_last_results_belong_to_is_refused(stash: Stash, format: str) -> None:
    asked: Native = {"role": "user", "content": "Find it."}
    if format == "gemini":
        asked = {"role": "user", "parts": [{"text": "Find it."}]}
    calls, results = CALLS_AND_RESULTS[format]
    for lacking in (results, [asked, *results]):
        with pytest.raises(BadInputError, match=r"not the reply with this call\. Pass the whole conversation"):
            await stash.get_context(SESSION, messages=lacking, format=format)
    assert (await stash.list_sessions()).sessions == []
    whole = [asked, *calls, *results]
    assert (await stash.get_context(SESSION, messages=whole, format=format)).messages == whole
    with pytest.raises(BadInputError, match="not the reply with this call"):
        await stash.get_context(SESSION, messages=[*whole, *_called(results, "c2")], format=format)
    assert (await stash.get_context(SESSION)).messages == whole


def _called(results: list[Native], name: str) -> list[Native]:
    """The results of another call."""
    text = json.dumps(results).replace('"c1"', f'"{name}"').replace('"look"', f'"{name}"')
    return list(json.loads(text))


async def test_a_list_whose_client_has_dropped_its_beginning_may_begin_with_a_result(stash: Stash) -> None:
    kept = [*called(1, "look", {}, "a zebra")[1:], *said("", "It is a zebra.", "Go on.")[1:]]
    context = await stash.get_context(SESSION, messages=kept)
    assert context.messages[-2:] == kept[-2:]


HELLO = {"role": "user", "content": "Look at the folder."}


@pytest.mark.parametrize("format_name", ["anthropic", "openai-chat", "openai-responses"])
async def test_the_first_tool_call_decides_between_formats(stash: Stash, format_name: str) -> None:
    [call, *_], _ = CALLS_AND_RESULTS[format_name]
    await stash.record_messages([HELLO], session_id=SESSION, first_seq=0)
    result = await stash.record_messages([call], session_id=SESSION, first_seq=1)
    assert result.recorded == 1
    assert (await stash.read_session(SESSION)).format == format_name
    assert await history(stash) == [HELLO, call]


async def test_a_session_that_has_shown_its_format_keeps_it(stash: Stash) -> None:
    natives = [HELLO, *called(1, "look", {}, "a zebra")[:1]]
    await stash.record_messages(natives, session_id=SESSION, first_seq=0)
    with pytest.raises(BadMessageError, match="another format"):
        await stash.record_messages(CALLS_AND_RESULTS["anthropic"][0], session_id=SESSION, first_seq=2)
    with pytest.raises(BadInputError, match="holds openai-chat messages"):
        await stash.record_messages([HELLO], session_id=SESSION, format="anthropic")
    assert await history(stash) == natives


HALF = "half emoji \ud83d and \ude00"
KEPT: list[dict[str, Any]] = [
    {"role": "user", "content": HALF},
    {"role": "user", "content": "x", "more": {HALF: [HALF * 1_000, -0.0, 10**4_000, -(2**64), 5e-324]}},
]


NOT_JSON = {
    "NaN": (float("nan"), "holds.* nan"),
    "Infinity": (float("inf"), "holds.* inf"),
    "a long integer": (10**5_000, "holds.* 4,299 digits"),
    "a tuple": ((1, 2), "holds a value of type tuple"),
    "a number as a key": ({1: 2}, "holds a key of type int"),
    "bytes": (b"x", "holds a value of type bytes"),
}


@pytest.mark.parametrize(("value", "says"), NOT_JSON.values(), ids=NOT_JSON.keys())
async def test_a_value_that_json_would_change_is_refused_by_its_name(
    stash: Stash, value: object, says: str | None
) -> None:
    asked = {"role": "user", "content": "x"}
    with pytest.raises(BadMessageError, match=f"Message 1 {says}"):
        await stash.record_messages([asked, {**asked, "more": [value]}], session_id="session")
    with pytest.raises(BadInputError, match=f"tools {says}"):
        await stash.get_context("session", messages=[asked], tools=[{"name": "read", "more": value}])
    with pytest.raises(BadInputError, match=f"system {says}"):
        await stash.get_context("session", messages=[asked], system=[{"text": "Be brief.", "more": value}])
    assert (await stash.list_sessions()).sessions == []
    await stash.record_messages(KEPT, session_id="session")
    assert repr(await history(stash)) == repr(KEPT)


async def test_a_message_of_a_transcript_with_a_number_that_json_cannot_hold_is_skipped_and_named(
    stash: Stash, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = {"NaN": "nan", "-Infinity": "-inf", "1E400": "inf"}
    lines = [f'{{"role": "user", "content": "half \\ud83d", "a": [-0.0, {number}]}}' for number in numbers]
    lines.append('{"role": "assistant", "content": "done \\ud83d", "b": [-0.0, 1.5, 5e-324]}')
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(lines) + "\n")
    report = await ingest(stash, path)
    assert report.session_id is not None
    assert repr(await history(stash, report.session_id)) == repr([json.loads(lines[-1])])
    for said in numbers.values():
        assert f"holds {said}" in caplog.text


async def test_a_message_that_would_hold_the_write_lock_for_long_is_refused_and_says_what_to_do(stash: Stash) -> None:
    block = {"type": "text", "text": "x" * (MAX_CHARACTERS // 4)}
    with pytest.raises(BadMessageError, match=r"Message 0 has more than 67,108,864 characters.* send its path"):
        await stash.record_messages([{"role": "user", "content": [block] * 5}], session_id="session")
    assert (await stash.list_sessions()).sessions == []


async def test_a_request_that_is_repeated_books_its_usage_once(stash: Stash) -> None:
    messages: list[Native] = [{"role": "user", "content": "Go."}]
    await stash.get_context(SESSION, messages=messages)
    messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Next."}]
    for _ in range(2):
        await stash.get_context(SESSION, messages=messages, usage={"input_tokens": 900, "output_tokens": 4})
    assert len(await stash.store.read_log(SESSION, Call)) == 1
