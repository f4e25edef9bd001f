"""The last reply of a session, which no request holds: recorded when `contextstash run` ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from contextstash.clients.follow import ingest
from tests.proxy.test_sessions import transcript_of
from tests.support.proxies import (
    ID,
    CachingProvider,
    Clock,
    RunningProxy,
    conversation_in,
    header_of,
    in_stash,
    play,
    recorded,
    request_of,
    rewinds,
    running_proxy,
    session,
)

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


def test_a_session_that_was_deleted_does_not_come_back_with_its_reply(run: Run, database: Path) -> None:
    with run() as proxy:
        play(proxy, session(2))
        in_stash(database, lambda stash: stash.delete_session(ID))
    assert recorded(database) == {}


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
