"""VS Code's chats: a document, or a session and its changes line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextstash.hosts.readers.transcript import State
from contextstash_storage.records import Usage
from tests.support.host_files import keys, read, roles, session_of, write_json, write_lines

TREE = {"node": {"type": 1, "children": [{"type": 2, "text": "print()\n"}, {"children": [{"type": 2, "text": "1"}]}]}}
ROUNDS = [
    {
        "id": "r1",
        "response": "I read it.",
        "thinking": {"id": "t", "text": "First the file."},
        "toolCalls": [
            {"id": "call_1", "name": "read_file", "arguments": '{"filePath": "a.py"}'},
            {"id": "call_2", "name": "list_dir", "arguments": "{}"},
        ],
    },
    {"id": "r2", "response": "It prints.", "toolCalls": []},
]
RESULTS = {
    "call_1": {"$mid": 20, "content": [{"$mid": 23, "value": TREE}]},
    "call_2": {"$mid": 20, "content": [{"$mid": 21, "value": "a.py"}]},
}


def request(key: str, text: str, **more: Any) -> dict[str, Any]:
    message = {"text": text, "parts": [{"kind": "text", "text": text}]}
    return {"requestId": key, "message": message, "timestamp": 1_760_000_000_000, "modelId": "copilot/gpt-5", **more}


def metadata(**more: Any) -> dict[str, Any]:
    return {"metadata": {"toolCallRounds": ROUNDS, "toolCallResults": RESULTS, **more}}


WHOLE = request("q1", "Read a.py", response=[{"value": "shown"}], result=metadata(promptTokens=900, outputTokens=30))
CHAT = {"version": 3, "sessionId": "chat-1", "customTitle": "Reading", "creationDate": 1, "requests": [WHOLE]}


def test_a_request_is_read_round_by_round(tmp_path: Path) -> None:
    path = write_json(tmp_path / "chat-1.json", CHAT)
    messages = read(path)
    assert roles(messages) == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[1].body["reasoning_content"] == "First the file."
    assert [call["id"] for call in messages[1].body["tool_calls"]] == ["call_1", "call_2"]
    assert [message.body["content"] for message in messages[2:4]] == ["print()\n1", "a.py"]
    assert messages[4].usage == Usage(prompt_tokens=900, completion_tokens=30)
    assert messages[1].usage is None
    session = session_of(path)
    assert (session.session_id, session.agent, session.title) == ("chat-1", "vscode", "Reading")


def test_a_log_of_changes_comes_to_the_same(tmp_path: Path) -> None:
    begun = {name: value for name, value in WHOLE.items() if name not in ("result", "response")}
    lines = [
        {"kind": 0, "v": {"version": 3, "sessionId": "chat-1", "requests": []}},
        {"kind": 2, "k": ["requests"], "v": [begun]},
        {"kind": 2, "k": ["requests", 0, "response"], "v": [{"value": "sh"}, {"value": "own"}]},
        {"kind": 2, "k": ["requests", 0, "response"], "i": 0, "v": [{"value": "shown"}]},
        {"kind": 1, "k": ["requests", 0, "result"], "v": WHOLE["result"]},
        {"kind": 1, "k": ["requests", 7, "result"], "v": "of nothing that is there"},
        {"kind": 3, "k": ["inputState"]},
    ]
    assert read(write_lines(tmp_path / "chat-1.jsonl", lines)) == read(write_json(tmp_path / "chat-1.json", CHAT))


def test_a_request_that_is_not_answered_yet_is_read_later(tmp_path: Path) -> None:
    state: State = {}
    asked = request("q2", "And b.py?", response=[])
    path = tmp_path / "chat-1.json"
    first = read(write_json(path, {**CHAT, "requests": [WHOLE, asked]}), state)
    done = {**asked, "response": [{"value": "It is "}, {"kind": "toolInvocationSerialized"}, {"value": "empty."}]}
    later = read(write_json(path, {**CHAT, "requests": [WHOLE, {**done, "modelState": {"value": 1}}]}), state)
    assert "q2" not in keys(first)
    assert [message.body["content"] for message in later] == ["And b.py?", "It is empty."]


def test_requests_that_were_undone_are_not_read(tmp_path: Path) -> None:
    undone = request("q2", "Wrong", shouldBeRemovedOnSend={"requestId": "q2"}, result={})
    messages = read(write_json(tmp_path / "chat-1.json", {**CHAT, "requests": [undone, WHOLE]}))
    assert keys(messages)[0] == "q1"
