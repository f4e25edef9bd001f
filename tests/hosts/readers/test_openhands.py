"""OpenHands' events: of the server, one file each or all in one, and of the SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextstash.hosts.following.ingest import ingest
from contextstash.hosts.readers.transcript import State
from contextstash_storage.records import Usage
from tests.support.host_files import keys, read, roles, session_of, write_json
from tests.support.stashes import stash_at, valid_view

Json = dict[str, Any]


def called(reply: str, *calls: str) -> Json:
    """The metadata of an action: the whole reply that it came from."""
    made = [{"id": key, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for key in calls]
    message = {"role": "assistant", "content": "Let me look.", "tool_calls": made}
    usage = {"prompt_tokens": 800, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 700}}
    response = {"id": reply, "model": "claude-sonnet-4-5", "choices": [{"message": message}], "usage": usage}
    return {"function_name": "bash", "tool_call_id": calls[0], "model_response": response}


def event(number: int, source: str, **more: Any) -> Json:
    return {"id": number, "timestamp": "2026-05-01T10:00:00", "source": source, "message": "", **more}


def run(number: int, reply: str, *calls: str, own: str | None = None) -> Json:
    metadata = {**called(reply, *calls), "tool_call_id": own or calls[0]}
    return event(number, "agent", action="run", args={"command": "ls", "thought": ""}, tool_call_metadata=metadata)


def output(number: int, call: str, text: str) -> Json:
    metadata = {"function_name": "bash", "tool_call_id": call, "model_response": {"id": "r"}}
    extras = {"command": "ls", "metadata": {"exit_code": 0}}
    return event(number, "agent", observation="run", content=text, extras=extras, tool_call_metadata=metadata, cause=1)


EVENTS = [
    event(0, "agent", action="system", args={"content": "You are an agent.", "tools": []}),
    event(1, "user", action="message", args={"content": "Look around", "image_urls": None}),
    event(2, "environment", observation="agent_state_changed", content="", extras={"agent_state": "running"}),
    event(3, "user", action="recall", args={"query": "Look around"}),
    run(4, "r1", "c1", "c2"),
    output(5, "c1", "a.py"),
    run(6, "r1", "c1", "c2", own="c2"),
    output(7, "c2", "b.py"),
    event(8, "agent", action="message", args={"content": "Two files."}),
]


def write_events(folder: Path, events: list[Json]) -> Path:
    for item in events:
        write_json(folder / "events" / f"{item['id']}.json", item)
    return folder


async def test_a_reply_with_two_calls_is_one_message(tmp_path: Path) -> None:
    folder = write_events(tmp_path / "conversation-1", EVENTS)
    messages = read(folder)
    assert roles(messages) == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [call["id"] for call in messages[2].body["tool_calls"]] == ["c1", "c2"]
    assert messages[2].usage == Usage(prompt_tokens=800, completion_tokens=9, cached_tokens=700)
    assert messages[3].body["content"] == "a.py\n[Command finished with exit code 0]"
    assert session_of(folder).session_id == "openhands-conversation-1"
    async with stash_at(tmp_path / "stash.db") as stash:
        await ingest(stash, folder)
        await valid_view(stash, "openai-chat", "openhands-conversation-1")


def test_a_trajectory_file_says_the_same_as_the_events(tmp_path: Path) -> None:
    filed = read(write_events(tmp_path / "conversation-1", EVENTS))
    assert read(write_json(tmp_path / "trajectory.json", EVENTS)) == filed


def test_a_condensation_covers_what_it_forgot_and_nothing_else(tmp_path: Path) -> None:
    arguments = {"forgotten_events_start_id": 4, "forgotten_events_end_id": 7, "summary": "Files were listed."}
    condensed = event(9, "agent", action="condensation", args=arguments)
    messages = read(write_events(tmp_path / "conversation-1", [*EVENTS, condensed]))
    summary = messages[-1]
    assert (summary.body["content"], summary.covers_before) == ("Files were listed.", True)
    assert (summary.covers_after_key, summary.covers_before_key) == (messages[1].key, messages[5].key)


def test_events_that_came_since_are_read_alone(tmp_path: Path) -> None:
    state: State = {}
    read(write_events(tmp_path / "conversation-1", EVENTS[:6]), state)
    later = read(write_events(tmp_path / "conversation-1", EVENTS), state)
    assert roles(later) == ["tool", "assistant"]


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text, "cache_prompt": False}]


def action(key: str, call: str, thought: str = "", reply: str = "r1") -> Json:
    tool_call = {"id": call, "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"}
    told = {"kind": "ActionEvent", "source": "agent", "thought": words(thought) if thought else []}
    return {"id": key, **told, "tool_name": "terminal", "tool_call_id": call, "tool_call": tool_call,
            "llm_response_id": reply, "thinking_blocks": [], "reasoning_content": "Look first."}  # fmt: skip


def seen(key: str, call: str, observation: Json, kind: str = "ObservationEvent", **more: Any) -> Json:
    told = {"source": "environment", "tool_name": "terminal", "observation": observation, **more}
    return {"id": key, "kind": kind, "tool_call_id": call, **told}


SDK: list[Json] = [
    {"id": "e0", "kind": "SystemPromptEvent", "source": "agent", "system_prompt": words("Be good.")[0], "tools": []},
    {"id": "e1", "kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": words("Look")}},
    {"id": "e2", "kind": "ConversationStateUpdateEvent", "source": "environment", "key": "x", "value": 1},
    action("e3", "c1", "I look."),
    action("e4", "c2"),
    seen("e5", "c1", {"kind": "TerminalObservation", "content": words("a.py"), "exit_code": 0}),
    seen("e6", "c2", {"kind": "ExecuteBashObservation", "output": "b.py"}),
    action("e7", "c3", reply="r2"),
    seen("e8", "c3", {}, "UserRejectObservation", rejection_reason="No."),
]


def write_conversation(folder: Path, events: list[Json]) -> Path:
    for place, item in enumerate(events):
        write_json(folder / "events" / f"event-{place:05}-{place:08}-aaaa.json", item)
    report = {"response_id": "r1", "prompt_tokens": 700, "completion_tokens": 8, "cache_read_tokens": 600}
    usage = {"agent": {"model_name": "m", "token_usages": [report]}}
    write_json(folder / "base_state.json", {"id": "x", "stats": {"usage_to_metrics": usage}})
    return folder


async def test_the_sdks_actions_of_one_reply_are_one_message(tmp_path: Path) -> None:
    folder = write_conversation(tmp_path / "0a1b", SDK)
    messages = read(folder)
    assert roles(messages) == ["system", "user", "assistant", "tool", "tool", "assistant", "tool"]
    assert messages[2].body["content"] == "I look."
    assert messages[2].body["reasoning_content"] == "Look first."
    assert [call["id"] for call in messages[2].body["tool_calls"]] == ["c1", "c2"]
    assert messages[2].usage == Usage(prompt_tokens=700, completion_tokens=8, cached_tokens=600)
    assert [messages[place].body["content"] for place in (3, 4, 6)] == ["a.py", "b.py", "Action rejected: No."]
    async with stash_at(tmp_path / "stash.db") as stash:
        report = await ingest(stash, folder)
        assert (report.session_id, report.recorded) == ("openhands-0a1b", 7)
        await valid_view(stash, "openai-chat", "openhands-0a1b")


def test_the_sdks_condensation_covers_what_it_forgot(tmp_path: Path) -> None:
    condensed = {
        "id": "e9",
        "kind": "Condensation",
        "forgotten_event_ids": ["e3", "e4", "e5", "e6"],
        "summary": "Listed.",
    }
    messages = read(write_conversation(tmp_path / "0a1b", [*SDK, condensed]))
    assert (messages[-1].covers_after_key, messages[-1].covers_before_key) == ("e1", "e7")
    assert keys(messages)[2] == "e3+2"
