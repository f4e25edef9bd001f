"""`record_messages` with the whole conversation each time: only rewound messages leave the view. A session that begins
with plain text takes the format that its later messages show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import DeclaredVersion, Native
from tests.support.stashes import (
    SESSION,
    counters_in_step,
    history,
    reply,
    stash_at,
    user,
    valid_view,
    view,
)


def said(*texts: str) -> list[Native]:
    return [{"role": "user" if place % 2 == 0 else "assistant", "content": text} for place, text in enumerate(texts)]


def looked_up(call_id: str, text: str) -> list[Native]:
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": text},
    ]


async def test_a_rewind_into_a_summary_removes_the_summary(tmp_path: Path) -> None:
    talk = [message for turn in range(12) for message in (user(4_000 + turn), reply(4_000 + turn))]
    async with stash_at(tmp_path / "w.db", window=20_000) as stash:
        await stash.record_messages(talk, session_id=SESSION, whole=True)
        assert (await stash.compact_session(SESSION)).compacted
        await stash.record_messages([*talk[:3], reply(7)], session_id=SESSION, whole=True)
        assert await view(stash) == [*talk[:3], reply(7)]
        await counters_in_step(stash)


REFUSED = {
    "two identities": ({"whole": True, "batch_id": "a"}, "at most one of first_seq"),
    "a position before the beginning": ({"first_seq": -1}, "0 or more"),
    "a position beyond the beginning": ({"first_seq": 5}, ""),
    "a position that is no number": ({"first_seq": True}, ""),
    "no characters": ({"batch_id": ""}, "1 to 200 characters"),
    "half a character": ({"batch_id": "\ud83d"}, ""),
    "a usage in no provider's form": ({"usage": {"none": 1}}, ""),
    "a usage without a reply": ({"usage": {"input_tokens": 1, "output_tokens": 1}}, ""),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_refused_batch_leaves_no_session_behind(stash: Stash, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        await stash.record_messages(said("hi"), session_id=SESSION, **arguments)
    assert (await stash.list_sessions()).sessions == []


async def test_a_system_message_that_changes_is_not_a_rewind(stash: Stash) -> None:
    talk: list[Native] = []
    for day in range(12):
        head: Native = {"role": "system", "content": f"Today is day {day}."}
        talk += said(f"question {day}", f"answer {day}")
        answer = await stash.record_messages([head, *talk], session_id=SESSION, whole=True)
        assert answer.recorded == (3 if day == 0 else 2)
        assert await valid_view(stash, "openai-chat") == [head, *talk]
    first: Native = {"role": "system", "content": "Today is day 0."}
    assert await history(stash) == [first, *talk]
    versions = [version.content for version in await stash.store.read_log(SESSION, DeclaredVersion)]
    assert versions == [[{"role": "system", "content": f"Today is day {day}."}] for day in range(1, 12)]


async def test_a_system_message_that_comes_back_is_shown_again(stash: Stash) -> None:
    talk = said("go", "done", "go on")
    heads: list[list[Native]] = [
        [],
        [{"role": "system", "content": "Be brief."}],
        [{"role": "system", "content": "Be brief."}, {"role": "system", "content": "Be kind."}],
        [],
        [{"role": "system", "content": "Be brief."}],
    ]
    for head in heads:
        answer = await stash.record_messages([*head, *talk], session_id=SESSION, whole=True)
        assert await valid_view(stash, "openai-chat") == [*head, *talk]
        assert answer.next_seq == 3
    assert len(await stash.store.read_log(SESSION, DeclaredVersion)) == 3


CALLS_AND_RESULTS: dict[str, tuple[list[Native], list[Native]]] = {
    "anthropic": (
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]}],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a zebra"}]}],
    ),
    "openai-chat": (looked_up("c1", "a zebra")[:1], looked_up("c1", "a zebra")[1:]),
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
    kept = [*looked_up("c1", "a zebra")[1:], *said("", "It is a zebra.", "Go on.")[1:]]
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
    natives = [HELLO, *looked_up("c1", "a zebra")[:1]]
    await stash.record_messages(natives, session_id=SESSION, first_seq=0)
    with pytest.raises(BadMessageError, match="another format"):
        await stash.record_messages(CALLS_AND_RESULTS["anthropic"][0], session_id=SESSION, first_seq=2)
    with pytest.raises(BadInputError, match="holds openai-chat messages"):
        await stash.record_messages([HELLO], session_id=SESSION, format="anthropic")
    assert await history(stash) == natives
