"""Each request lands in the right session, and each message is stored once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from contextstash.clients.follow import ingest
from contextstash.safety.sanitize import MARKER, OF_SESSION
from contextstash.stash import Stash
from tests.support.client_files import record, write_lines
from tests.support.proxies import (
    ID,
    OLD,
    READ,
    RETRIEVAL,
    CachingProvider,
    Clock,
    RunningProxy,
    conversation_in,
    header_of,
    in_stash,
    placeholders,
    play,
    prune_cold,
    recorded,
    request_of,
    rewinds,
    running_proxy,
    session,
    turn,
)
from tests.support.stashes import history


def stored(proxy: RunningProxy) -> dict[str, int]:
    """The sessions and how many messages each holds."""

    async def work(stash: Stash) -> dict[str, int]:
        return {each.session_id: each.messages for each in (await stash.list_sessions()).sessions}

    found: dict[str, int] = in_stash(proxy.database, work)
    return found


def test_a_moving_breakpoint_stores_no_message_twice(proxy: RunningProxy) -> None:
    messages = session(6)
    play(proxy, messages)
    assert stored(proxy) == {ID: len(messages)}
    recorded = in_stash(proxy.database, lambda stash: history(stash, ID))
    assert recorded[0] == messages[0]
    assert "cache_control" not in json.dumps(recorded)


def test_a_side_call_without_tools_belongs_to_no_session(proxy: RunningProxy) -> None:
    response = proxy.send(request_of([{"role": "user", "content": "Write a title."}], tools=[]))
    assert "x-contextstash-session" not in response.headers
    assert stored(proxy) == {}


def test_a_sub_agent_has_a_session_of_its_own_and_gets_no_placeholder_of_what_it_never_saw(proxy: RunningProxy) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    sub_agent = [{"role": "user", "content": "Search the code."}, *turn(0, session(1)[2]["content"][0]["content"])]
    response = proxy.send(request_of(sub_agent, system=[{"type": "text", "text": "You are a sub-agent."}]))
    assert placeholders(proxy.provider.bodies[-1]) == []
    assert response.headers["x-contextstash-session"].startswith(f"{ID}.")
    assert sorted(stored(proxy).values()) == [3, len(messages)]


@pytest.mark.parametrize(
    "begins",
    ["This session continues from a summary.", f"{MARKER}: {OF_SESSION}{ID}]\nThe task: …"],
    ids=["client", "us"],
)
def test_a_compaction_by_the_client_or_our_plugin_keeps_the_session_and_is_not_disturbed(
    proxy: RunningProxy, begins: str
) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    before = placeholders(proxy.provider.bodies[-1])
    proxy.clock.now += 400
    asks = {"role": "user", "content": "Your task is to create a detailed summary of the conversation so far."}
    proxy.send(request_of([*messages, asks]))
    assert placeholders(proxy.provider.bodies[-1]) == before != OLD
    after = [{"role": "user", "content": begins}, *turn(30, "new")]
    response = proxy.send(request_of(after))
    assert response.headers["x-contextstash-session"] == ID
    assert list(stored(proxy)) == [ID]


def test_a_rewind_keeps_the_session_and_its_pins(proxy: RunningProxy) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    rewound = [*messages[:7], {"role": "assistant", "content": "Other."}, {"role": "user", "content": "Go on."}]
    response = proxy.send(request_of(rewound))
    assert response.headers["x-contextstash-session"] == ID
    assert placeholders(proxy.provider.bodies[-1]) == OLD[:3]
    changed = [{"role": "user", "content": "Fix the other bug."}, *messages[1:]]
    proxy.send(request_of(changed))
    assert placeholders(proxy.provider.bodies[-1]) == OLD


def transcript_of(messages: list[dict[str, Any]], path: Path) -> Path:
    """The messages as Claude Code writes them to its transcript."""
    records = [
        record(each["role"], f"u{number}", f"u{number - 1}" if number else None, each["content"], sessionId=ID)
        for number, each in enumerate(messages)
    ]
    return write_lines(path, records)


def test_a_followed_session_is_recorded_by_its_transcript_and_pruned_all_the_same(
    proxy: RunningProxy, tmp_path: Path
) -> None:
    messages = session(8)
    path = transcript_of(messages[:3], tmp_path / f"{ID}.jsonl")
    in_stash(proxy.database, lambda stash: ingest(stash, path))
    transcript_of(messages, path)
    prune_cold(proxy, messages)
    assert stored(proxy) == {ID: len(messages)}
    assert placeholders(proxy.provider.bodies[-1]) == OLD


def test_a_session_that_a_transcript_begins_to_record_while_the_first_reply_comes_is_recorded_once(
    proxy: RunningProxy, tmp_path: Path
) -> None:
    messages = session(2)
    path = transcript_of(messages, tmp_path / f"{ID}.jsonl")
    proxy.provider.pause_at = 1
    with ThreadPoolExecutor() as thread:
        reply = thread.submit(proxy.send, request_of(messages))
        while not proxy.provider.asked:
            time.sleep(0.01)
        in_stash(proxy.database, lambda stash: ingest(stash, path))
        proxy.provider.resumed.set()
        assert reply.result(30).status_code == 200
    assert stored(proxy) == {ID: len(messages)}
    assert rewinds(proxy.database, ID) == 0


def test_the_estimate_of_a_followed_session_follows_the_edits_that_its_proxy_makes(
    proxy: RunningProxy, tmp_path: Path
) -> None:
    messages = session(4)
    path = transcript_of(messages, tmp_path / f"{ID}.jsonl")
    in_stash(proxy.database, lambda stash: ingest(stash, path))
    alone = in_stash(proxy.database, lambda stash: stash.prune_tool_outputs(ID, keep_last=1, dry_run=True))
    play(proxy, messages, first=len(messages))
    before = in_stash(proxy.database, lambda stash: stash.estimate_context(ID))
    pruned = in_stash(proxy.database, lambda stash: stash.prune_tool_outputs(ID, keep_last=1))
    after = in_stash(proxy.database, lambda stash: stash.estimate_context(ID))
    assert "your client sends" in alone.note
    assert "your client sends" not in pruned.note
    assert "next request shows the change" in pruned.note
    assert after.tokens < before.tokens - 0.9 * pruned.tokens_saved
    assert after.view_tokens is None


def test_a_prune_and_a_restore_by_the_tools_show_in_the_next_request(proxy: RunningProxy) -> None:
    proxy.clock.now = time.time()
    messages = session(4)
    play(proxy, messages)
    pruned = in_stash(proxy.database, lambda stash: stash.prune_tool_outputs(ID, keep_last=1))
    assert "next request shows the change" in pruned.note
    messages += turn(20, "x")
    play(proxy, messages, first=len(messages))
    assert placeholders(proxy.provider.bodies[-1]) == OLD[:3]
    handles = [archived.handle for archived in pruned.archived[:1]]
    in_stash(proxy.database, lambda stash: stash.restore_outputs(handles, session_id=ID))
    play(proxy, messages, first=len(messages))
    assert len(placeholders(proxy.provider.bodies[-1])) == 2


def test_a_compaction_by_our_tool_shows_in_the_next_request(proxy: RunningProxy) -> None:
    messages = session(30)
    play(proxy, messages)
    result = in_stash(proxy.database, lambda stash: stash.compact_session(ID, summary="We fixed the parser."))
    assert result.compacted
    messages += turn(40, "x")
    play(proxy, messages, first=len(messages))
    body = proxy.provider.bodies[-1]
    assert "We fixed the parser." in json.dumps(body["messages"])
    assert len(body["messages"]) < len(messages)
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "user"
    assert all(one != two for one, two in pairwise(roles))


@pytest.mark.parametrize(
    "said", [RETRIEVAL["name"], "The following MCP servers are still connecting:\ncontextstash\n\nUse ToolSearch."]
)
def test_tools_by_name_are_enough_if_the_client_searches_tools(proxy: RunningProxy, said: str) -> None:
    first, *rest = session(8)
    tools = [READ, {"name": "ToolSearch", "input_schema": {"type": "object"}}]
    prune_cold(proxy, [first, {"role": "system", "content": said}, *rest], tools=tools)
    assert placeholders(proxy.provider.bodies[-1]) == OLD


@pytest.mark.parametrize("merged", [False, True])
def test_the_results_that_filled_the_window_are_recorded_from_the_request_for_the_summary(
    proxy: RunningProxy, merged: bool
) -> None:
    """No other request holds them: the next one begins with the summary. Some clients write the prompt into the message
    with the results, since messages of the user must not follow each other."""
    messages = session(3)
    play(proxy, messages[:5])
    summary = {"type": "text", "text": "Your task is to create a detailed summary of the conversation so far."}
    last = {"role": "user", "content": [*messages[-1]["content"], summary]}
    apart = [*messages, {"role": "user", "content": [summary]}]
    proxy.send(request_of([*messages[:-1], last] if merged else apart))
    proxy.send(request_of([{"role": "user", "content": "This session is being continued. Go on."}]))
    found = json.dumps(recorded(proxy.database))
    assert '"toolu_2"' in found
    assert "detailed summary" not in found


SAID = "All is done: naïve parsers are gone…"
REPLY = {"role": "assistant", "content": SAID}
THANKS = {"role": "user", "content": "Thanks."}

Run = Callable[[], AbstractContextManager[RunningProxy]]


@pytest.fixture
def run(provider: CachingProvider, clock: Clock, tmp_path: Path) -> Run:
    """Starts the proxy as `contextstash run` does, each time on the same database."""
    provider.reply = SAID
    return partial(running_proxy, provider.url, tmp_path / "stash.db", clock, secret="s")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "stash.db"


def ask(proxy: RunningProxy, messages: list[dict[str, Any]]) -> Any:
    """The reply to a conversation, by Anthropic's own client as a stream."""
    fields = {**request_of([THANKS]), "messages": messages}
    del fields["stream"]
    client = Anthropic(api_key="key", base_url=proxy.url, default_headers=header_of(fields))
    with client.messages.stream(**fields) as stream:
        message = stream.get_final_message()
    proxy.settle()
    return message


def test_the_last_reply_is_found_by_search_after_the_session(run: Run, database: Path) -> None:
    messages = session(2)
    with run() as proxy:
        ask(proxy, messages)
    assert recorded(database) == {ID: [*messages, REPLY]}
    found = in_stash(database, lambda stash: stash.search_history("naïve parsers", session_id=ID))
    assert SAID in json.dumps(found.model_dump(mode="json"), ensure_ascii=False)


def test_a_session_that_is_resumed_holds_its_reply_once(run: Run, database: Path) -> None:
    messages = session(2)
    with run() as proxy:
        reply = ask(proxy, messages)
    with run() as proxy:
        ask(proxy, [*messages, {"role": "assistant", "content": reply.content}, THANKS])
    assert recorded(database) == {ID: [*messages, REPLY, THANKS, REPLY]}
    assert rewinds(database, ID) == 0


def test_what_another_process_has_recorded_meanwhile_is_not_hidden(run: Run, database: Path) -> None:
    messages = session(4)
    with run() as first:
        play(first, messages[:5])
        with run() as second:
            play(second, messages, first=len(messages))
    assert conversation_in(database, ID) == [*messages, REPLY]
    assert rewinds(database, ID) == 0


def test_a_session_that_its_transcript_records_gets_no_reply_from_the_proxy(
    run: Run, database: Path, tmp_path: Path
) -> None:
    messages = session(2)
    path = transcript_of(messages, tmp_path / f"{ID}.jsonl")
    in_stash(database, lambda stash: ingest(stash, path))
    with run() as proxy:
        play(proxy, messages)
    assert len(recorded(database)[ID]) == len(messages)


def test_codex_gets_back_its_reply_in_the_form_in_which_it_sends_it(
    run: Run, provider: CachingProvider, database: Path
) -> None:
    text = {"type": "output_text", "text": SAID, "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    shell: Any = {"type": "function", "name": "exec_command", "parameters": {"type": "object"}}
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [],
        "usage": None,
    }
    provider.responses_events = lambda body: [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    asked: list[Any] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]}]
    reply = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SAID}]}
    for _ in range(2):
        with run() as proxy:
            client = OpenAI(
                api_key="key", base_url=f"{proxy.url}/v1", default_headers={"session-id": "s", "thread-id": "s"}
            )
            for _ in client.responses.create(model="gpt-5.4", input=asked, tools=[shell], stream=True, store=False):
                pass
            proxy.settle()
        assert list(recorded(database).values()) == [[*asked, reply]]
        asked += [reply, {**asked[0], "content": [{"type": "input_text", "text": "Go on."}]}]
