"""Files of messages that other programs write: requests, Cline's and Roo Code's tasks, SWE-agent's trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextstash.hosts.following.ingest import ingest
from contextstash.service.stash import Stash
from tests.support.stashes import history, stash_at

CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}


async def imported(stash: Stash, path: Path, document: Any) -> list[dict[str, Any]]:
    """What a file's session holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    report = await ingest(stash, path)
    assert report.session_id
    assert (await ingest(stash, path)).recorded == 0
    return await history(stash, report.session_id)


async def test_a_task_of_cline_is_named_after_its_folder(tmp_path: Path) -> None:
    task = [
        {"role": "user", "content": [{"type": "text", "text": "<task>\nFix the parser.\n</task>"}], "ts": 1},
        {"role": "assistant", "content": [{"type": "text", "text": "Fixed."}], "ts": 2},
    ]
    path = tmp_path / "saoudrizwan.claude-dev" / "tasks" / "1763600000000" / "api_conversation_history.json"
    async with stash_at(tmp_path / "c.db") as stash:
        assert await imported(stash, path, task) == task
        [session] = (await stash.list_sessions()).sessions
    assert session.session_id.startswith("task-1763600000000-")
    assert session.agent == "cline"


async def test_a_task_of_roo_code_is_recognized_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "rooveterinaryinc.roo-cline" / "tasks" / "abc" / "api_conversation_history.json"
    async with stash_at(tmp_path / "r.db") as stash:
        await imported(stash, path, [{"role": "user", "content": [{"type": "text", "text": "Go."}]}])
        assert (await stash.list_sessions()).sessions[0].agent == "roo-code"


async def test_a_trajectory_of_swe_agent_keeps_calls_and_results_together(tmp_path: Path) -> None:
    trajectory = {
        "environment": "swe_main",
        "trajectory": [{"action": "ls", "observation": "setup.py"}],
        "history": [
            {"role": "system", "content": "You are a programmer.", "agent": "main", "message_type": "system_prompt"},
            {"role": "user", "content": "Fix the bug.", "agent": "main", "message_type": "observation"},
            {"role": "assistant", "content": "Look.", "tool_calls": [CALL], "agent": "main", "message_type": "action"},
            {"role": "tool", "content": "setup.py", "tool_call_ids": ["call_1"], "message_type": "observation"},
        ],
        "info": {"exit_status": "submitted"},
    }
    async with stash_at(tmp_path / "s.db") as stash:
        messages = await imported(stash, tmp_path / "fix.traj", trajectory)
        [session] = (await stash.list_sessions()).sessions
        [output] = await stash._access.store.read_outputs(session.session_id)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
    assert messages[3]["tool_call_id"] == "call_1"
    assert (session.agent, output.tool, output.argument) == ("swe-agent", "bash", "ls")


async def test_a_request_of_responses_is_read_with_its_instructions(tmp_path: Path) -> None:
    request = {
        "model": "gpt-5.2",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}],
    }
    async with stash_at(tmp_path / "q.db") as stash:
        messages = await imported(stash, tmp_path / "request.json", request)
    assert messages == [{"role": "system", "content": "Be brief."}, *request["input"]]


async def test_a_request_of_gemini_is_read_with_its_system_instruction(tmp_path: Path) -> None:
    instruction = {"parts": [{"text": "Be brief."}]}
    request = {"systemInstruction": instruction, "contents": [{"role": "user", "parts": [{"text": "go"}]}]}
    async with stash_at(tmp_path / "s.db") as stash:
        messages = await imported(stash, tmp_path / "request.json", request)
    assert messages == [{"role": "system", **instruction}, *request["contents"]]
