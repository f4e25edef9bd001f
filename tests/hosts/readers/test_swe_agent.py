"""SWE-agent's trajectories that hold no history."""

from __future__ import annotations

from pathlib import Path

from tests.support.host_files import read, roles, write_json


def test_a_trajectory_without_a_history_is_read_step_by_step(tmp_path: Path) -> None:
    query = [{"role": "system", "content": "You are a programmer."}, {"role": "user", "content": "Fix it."}]
    steps = [
        {"query": query, "response": "Look.\n```\nls\n```", "thought": "Look.", "action": "ls", "observation": "a.py"},
        {"query": [], "response": "", "thought": "Done.", "action": "submit", "observation": ""},
    ]
    messages = read(write_json(tmp_path / "fix.traj", {"trajectory": steps, "info": {}}))
    assert roles(messages) == ["system", "user", "assistant", "user", "assistant"]
    assert [message.by_host for message in messages] == [False, False, False, True, False]
    assert [message.body["content"] for message in messages[2:]] == ["Look.\n```\nls\n```", "a.py", "Done."]


def test_a_result_of_an_older_run_without_the_tool_role_answers_its_call(tmp_path: Path) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    history = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "a.py", "tool_call_ids": ["call_1"], "message_type": "observation"},
    ]
    document = {"trajectory": [{"action": "ls", "observation": "a.py"}], "history": history}
    result = read(write_json(tmp_path / "fix.traj", document))[1].body
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_1")
