"""Gemini CLI's recordings, and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextstash.clients.transcripts import State
from contextstash_storage.records import Usage
from tests.support.client_files import keys, read, roles, session_of, write_json, write_lines

SESSION = "4c0f2c3a-0000-4000-8000-000000000001"
HEAD = {"sessionId": SESSION, "projectHash": "ab" * 32, "startTime": "2026-05-01T10:00:00.000Z", "kind": "main"}
TOKENS = {"input": 9_000, "output": 40, "cached": 8_000, "thoughts": 60, "tool": 0, "total": 9_100}


def user(key: str, text: str) -> dict[str, Any]:
    return {"id": key, "timestamp": "2026-05-01T10:00:01.000Z", "type": "user", "content": [{"text": text}]}


def reply(key: str, text: str = "", **more: Any) -> dict[str, Any]:
    told = {"id": key, "timestamp": "2026-05-01T10:00:02.000Z", "type": "gemini", "content": text}
    return {**told, "thoughts": [], "tokens": None, "model": "gemini-3-pro", **more}


def call(key: str, output: str) -> dict[str, Any]:
    response = {"functionResponse": {"id": key, "name": "read_file", "response": {"output": output}}}
    called = {"id": key, "name": "read_file", "args": {"path": "a.py"}, "status": "success", "result": [response]}
    return {**called, "timestamp": "2026-05-01T10:00:03.000Z", "resultDisplay": "shown to the user"}


TALK = [
    user("u1", "Read a.py"),
    {"id": "i1", "timestamp": "2026-05-01T10:00:01.500Z", "type": "info", "content": "Update available"},
    reply(
        "g1",
        "I will.",
        thoughts=[{"subject": "Reading", "description": "The file first.", "timestamp": "t"}],
        tokens=TOKENS,
        toolCalls=[call("c1", "print()"), call("c2", "pass")],
    ),
    reply("g2", "Both read."),
]


def test_a_recording_is_read_with_calls_results_and_usage(tmp_path: Path) -> None:
    changed = {key: value for key, value in TALK[2].items() if key != "toolCalls"}
    lines = [HEAD, TALK[0], {"$set": {"summary": "Reading a.py"}}, TALK[1], changed, TALK[2], TALK[3]]
    path = write_lines(tmp_path / "session-1.jsonl", lines)
    messages = read(path)
    assert roles(messages) == ["user", "model", "model", "user", "model", "user", "model"]
    thought = {"text": "**Reading**\nThe file first.", "thought": True}
    assert messages[1].body["parts"] == [thought, {"text": "I will."}]
    assert messages[1].usage == Usage(prompt_tokens=9_000, completion_tokens=100, cached_tokens=8_000)
    answers = [
        part["functionResponse"] for each in messages for part in each.body["parts"] if "functionResponse" in part
    ]
    assert [answer["response"]["output"] for answer in answers] == ["print()", "pass"]
    assert all(message.usage is None for message in messages[2:])
    session = session_of(path)
    assert (session.session_id, session.agent, session.title) == (SESSION, "gemini", "Reading a.py")


def test_calls_that_come_after_their_reply_was_read_are_added_to_it(tmp_path: Path) -> None:
    state: State = {}
    path = tmp_path / "session-1.jsonl"
    read(write_lines(path, [HEAD, TALK[0], reply("g1", "I will.")]), state)
    later = read(write_lines(path, [HEAD, TALK[0], reply("g1", "I will."), TALK[2]]), state)
    assert keys(later) == ["g1#c1", "g1#c1=", "g1#c2", "g1#c2="]
    assert later[0].rewind_to_key is None


def test_a_rewind_takes_back_what_was_read(tmp_path: Path) -> None:
    state: State = {}
    path = tmp_path / "session-1.jsonl"
    lines = [HEAD, user("u1", "One"), reply("g1", "1"), user("u2", "Wrong"), reply("g2", "2")]
    read(write_lines(path, lines), state)
    [message] = read(write_lines(path, [*lines, {"$rewindTo": "u2"}, user("u3", "Right")]), state)
    assert (message.key, message.rewind_to_key) == ("u3", "g1")


def test_a_branch_that_was_left_before_it_was_read_is_not_read(tmp_path: Path) -> None:
    """Also if it was left by two rewinds, the second to further before."""
    kept = [user("u1", "One"), reply("g1", "1")]
    left = [user("u2", "Wrong"), reply("g2", "2"), user("u3", "Wrong too"), {"$rewindTo": "u3"}, {"$rewindTo": "u2"}]
    rebuilt = {"$set": {"messages": [*kept, user("u4", "Right")]}}
    lines = [HEAD, *kept, *left, user("u4", "Right"), rebuilt, reply("g4", "4")]
    messages = read(write_lines(tmp_path / "session-1.jsonl", lines))
    assert keys(messages) == ["u1", "g1", "u4", "g4"]
    assert not any(each.rewind_to_key or each.covers_before for each in messages)


def test_a_compression_covers_what_it_replaced_and_keeps_the_rest(tmp_path: Path) -> None:
    lines = [HEAD, user("u1", "Old"), reply("g1", "Old too"), user("u2", "Kept"), reply("g2", "Kept too")]
    summary = {**user("s1", "<state_snapshot>All so far</state_snapshot>"), "content": [{"text": "<state_snapshot>…"}]}
    after = [user("e1", "This is the context."), summary, reply("s2", "Got it."), lines[3], lines[4]]
    path = write_lines(tmp_path / "session-1.jsonl", [*lines, {"$set": {"messages": after}}, user("u3", "Next")])
    messages = read(path)
    assert keys(messages) == ["u1", "g1", "u2", "g2", "s1", "u3"]
    assert (messages[4].covers_before, messages[4].covers_before_key) == (True, "u2")


def test_a_history_rewritten_with_masked_results_keeps_the_originals(tmp_path: Path) -> None:
    masked = {**TALK[2], "toolCalls": [call("c1", "[masked]"), call("c2", "pass")]}
    lines = [HEAD, *TALK, {"$set": {"messages": [user("e1", "The context."), TALK[0], masked, TALK[3]]}}]
    messages = read(write_lines(tmp_path / "session-1.jsonl", lines))
    assert messages == read(write_lines(tmp_path / "session-2.jsonl", [HEAD, *TALK]))


def test_a_sub_agents_recording_is_a_session_below_its_parents(tmp_path: Path) -> None:
    path = tmp_path / "chats" / SESSION / "agent-1.jsonl"
    write_lines(path, [{**HEAD, "sessionId": "agent-1", "kind": "subagent"}, user("u1", "Look")])
    assert session_of(path).parent_session_id == SESSION


CONTENTS = [
    {"role": "user", "parts": [{"text": "Read it"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
    {"role": "model", "parts": [{"text": "Hm", "thought": True}, {"functionCall": {"name": "read_file", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "read_file", "response": {"error": "no such file"}}}]},
]


def test_a_checkpoint_is_read_as_it_is(tmp_path: Path) -> None:
    for name, document in (("a", CONTENTS), ("b", {"history": CONTENTS}), ("c", {"clientHistory": CONTENTS})):
        path = write_json(tmp_path / f"checkpoint-{name}.json", document)
        assert [message.body for message in read(path)] == CONTENTS
        assert session_of(path).format == "gemini"


def test_a_reply_whose_calls_are_still_being_made_is_read_once_they_are_done(tmp_path: Path) -> None:
    waiting = {**call("c1", ""), "status": "executing", "result": None}
    state: State = {}
    lines = [HEAD, user("u1", "Read a.py"), reply("g1", "I will.", toolCalls=[call("c0", "x"), waiting])]
    assert keys(read(write_lines(tmp_path / "session-1.jsonl", lines), state)) == ["u1"]
    lines.append(reply("g1", "I will.", toolCalls=[call("c0", "x"), call("c1", "y")]))
    fresh = read(write_lines(tmp_path / "session-1.jsonl", lines), state)
    assert keys(fresh) == ["g1", "g1#c0", "g1#c0=", "g1#c1", "g1#c1="]
    assert fresh[0].rewind_to_key is None
