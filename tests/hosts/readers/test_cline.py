"""Tasks of Cline and Roo Code: what they cost, what Roo condensed, and Roo's second shape."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from contextstash.hosts.following.ingest import ingest
from contextstash.hosts.readers.transcript import State
from contextstash_storage.records import Usage
from tests.support.host_files import keys, read, session_of, write_json
from tests.support.stashes import stash_at, valid_view


def said(role: str, text: str, ts: int, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}], "ts": ts, **more}


def request(ts: int, **numbers: int) -> dict[str, Any]:
    return {"ts": ts, "type": "say", "say": "api_req_started", "text": json.dumps({"request": "…", **numbers})}


def task(folder: Path, history: Any, interface: list[dict[str, Any]] | None = None) -> Path:
    path = write_json(folder / "1763600000000" / "api_conversation_history.json", history)
    if interface is not None:
        write_json(path.with_name("ui_messages.json"), interface)
    return path


def test_usage_comes_from_the_replys_metrics_or_from_the_call_before_it(tmp_path: Path) -> None:
    metrics = {"tokens": {"prompt": 500, "completion": 7, "cached": 100}, "cost": 0.1}
    history = [said("user", "Go", 1_000), said("assistant", "1", 1_500), said("user", "On", 2_000)]
    history += [said("assistant", "2", 2_500, metrics=metrics), said("assistant", "3", 2_600)]
    interface = [request(1_200, tokensIn=10, tokensOut=2, cacheWrites=30, cacheReads=60)]
    messages = read(task(tmp_path, history, interface))
    assert messages[1].usage == Usage(prompt_tokens=100, completion_tokens=2, cached_tokens=60, cache_write_tokens=30)
    assert messages[3].usage == Usage(prompt_tokens=600, completion_tokens=7, cached_tokens=100)
    assert messages[4].usage is None


def test_a_restored_checkpoint_takes_the_task_back(tmp_path: Path) -> None:
    state: State = {}
    history = [said("user", "Go", 1), said("assistant", "Right", 2), said("user", "Wrong", 3)]
    read(task(tmp_path, history), state)
    [message] = read(task(tmp_path, [*history[:2], said("user", "Better", 4)]), state)
    assert message.rewind_to_key == "2-assistant"


def test_a_summary_of_roos_covers_what_it_replaced(tmp_path: Path) -> None:
    state: State = {}
    history = [said("user", "Old", 1), said("assistant", "Old", 2), said("user", "Kept", 3)]
    read(task(tmp_path, history), state)
    summary = said("user", "All so far", 4, isSummary=True, condenseId="c1")
    condensed = [{**message, "condenseParent": "c1"} for message in history[:2]]
    path = task(tmp_path, [*condensed, summary, history[2]])
    [message, moved] = read(path, state)
    assert keys([message, moved]) == ["4-user", "3-user"]
    assert (message.covers_before, message.covers_before_key, message.rewind_to_key) == (True, "3-user", None)
    assert session_of(path).agent == "roo-code"


def test_messages_in_the_ai_sdks_shape_become_anthropics(tmp_path: Path) -> None:
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "read_file", "input": {"path": "a"}}
    thought = {"type": "reasoning", "text": "Hm.", "providerOptions": {"anthropic": {"signature": "sig"}}}
    output = {"type": "error-text", "value": "no such file"}
    history = [
        {"role": "user", "content": "Read a", "ts": 1},
        {"role": "assistant", "content": [thought, call], "ts": 2},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "output": output}], "ts": 3},
        {"type": "reasoning", "encrypted_content": "…", "ts": 4},
    ]
    path = task(tmp_path, {"version": 2, "messages": history})
    messages = read(path)
    assert messages[1].body["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "no such file", "is_error": True}
    assert messages[2].body == {"role": "user", "content": [result]}
    assert len(messages) == 3
    assert session_of(path).agent == "roo-code"


def called(name: str, arguments: dict[str, Any], ts: int) -> dict[str, Any]:
    call = {"type": "tool_use", "id": f"c{ts}", "name": name, "input": arguments}
    return {"role": "assistant", "content": [call], "ts": ts}


def relayed(server: str, tool: str, ts: int, **arguments: Any) -> dict[str, Any]:
    """A call of an MCP server's tool, whose arguments Cline writes as JSON text."""
    given = {"server_name": server, "tool_name": tool, "arguments": json.dumps(arguments)}
    return called("use_mcp_tool", given, ts)


def answered(text: str, ts: int) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": f"c{ts - 1}", "content": text}],
        "ts": ts,
    }


async def test_our_own_tools_are_recognized_behind_the_clients_tool_for_all_servers(tmp_path: Path) -> None:
    history = [said("user", "Where is the leak?", 1)]
    history += [relayed("contextstash", "search_history", 2, query="leak"), answered("1 hit: the leak is in pool.c", 3)]
    history += [called("cAb3dE0mcp0search_history", {"query": "leak"}, 4), answered("1 hit: leak", 5)]
    history += [relayed("github", "get_issue", 6, query="issue 7"), answered("the leak began in May", 7)]
    async with stash_at(tmp_path / "c.db") as stash:
        report = await ingest(stash, task(tmp_path, history))
        assert report.session_id
        hits = (await stash.search_history("leak", session_id=report.session_id)).hits
    assert sorted(hit.seq for hit in hits) == [0, 6]


def roo(ts: int, role: str = "user", **marks: Any) -> dict[str, Any]:
    """A message whose text is its time."""
    return {"role": role, "content": [{"type": "text", "text": f"at {ts}"}], "ts": ts, **marks}


KEPT = [roo(1), roo(2, "assistant"), roo(3), roo(4, "assistant"), roo(5)]
CONDENSED = {"condenseParent": "c"}
LEFT_OUT = {"truncationParent": "t"}
SUMMARY = roo(6, isSummary=True, condenseId="c")
NOTE = roo(6, isTruncationMarker=True, truncationId="t")


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        ([roo(1), SUMMARY, *KEPT[3:]], [1, 6, 4, 5]),
        ([*({**m, **CONDENSED} for m in KEPT[:3]), SUMMARY, *KEPT[3:]], [6, 4, 5]),
        ([*({**m, **CONDENSED} for m in KEPT), SUMMARY], [6]),
        ([KEPT[0], *({**m, **LEFT_OUT} for m in KEPT[1:3]), NOTE, *KEPT[3:]], [1, 6, 4, 5]),
    ],
    ids=["an older summary", "a summary", "a summary of all", "a truncation"],
)
@pytest.mark.parametrize("seen", [True, False], ids=["followed", "imported"])
async def test_what_roo_code_condensed_or_left_out_is_not_shown(
    tmp_path: Path, after: list[dict[str, Any]], shown: list[int], seen: bool
) -> None:
    path = tmp_path / "rooveterinaryinc.roo-cline" / "tasks" / "abc" / "api_conversation_history.json"
    async with stash_at(tmp_path / "roo.db") as stash:
        if seen:
            await ingest(stash, write_json(path, KEPT))
        report = await ingest(stash, write_json(path, after))
        assert report.session_id
        messages = json.dumps(await valid_view(stash, "anthropic", report.session_id))
    assert re.findall(r"at (\d)", messages) == [str(ts) for ts in shown]
