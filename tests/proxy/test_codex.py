"""What Codex (seen in 0.169) does differently: namespaces of tools, threads, late servers, refusals within a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from contextstash_storage.records import Call
from contextstash_storage.sqlite import open_sqlite
from tests.support.proxies import CachingProvider, Clock, RunningProxy, conversation_in, in_stash, running_proxy, tokens

SHELL: dict[str, Any] = {"type": "function", "name": "exec_command", "parameters": {"type": "object"}}
OURS: dict[str, Any] = {
    "type": "namespace",
    "name": "mcp__contextstash",
    "tools": [{"type": "function", "name": "get_archived_output", "parameters": {"type": "object"}}],
}
PROMPT = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]}
SUMMARIZE = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."
TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
COLD = 4_000.0


@pytest.fixture(autouse=True)
def codex_api(provider: CachingProvider) -> None:
    provider.responses_events = reply_events


def reply_events(body: dict[str, Any]) -> list[dict[str, Any]]:
    usage = {"input_tokens": tokens(json.dumps(body)), "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5}
    started = [{"type": "response.created", "response": {}}, {"type": "response.in_progress", "response": {}}]
    return [*started, {"type": "response.completed", "response": {"usage": usage}}]


def items(turns: int, *, thread: str = "t", reasoning: bool = False) -> list[dict[str, Any]]:
    """A conversation with so many calls and their outputs, with `reasoning` each after a piece of that."""
    text = {"type": "input_text", "text": f"Fix {thread}."}
    found: list[dict[str, Any]] = [PROMPT, {"type": "message", "role": "user", "content": [text]}]
    for number in range(turns):
        call = {"type": "function_call", "call_id": f"{thread}{number}", "name": "exec_command"}
        output = "".join(f"line {thread} {number}-{k}\n" for k in range(900))
        if reasoning:
            found.append({"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "x" * 400})
        found.append({**call, "arguments": json.dumps({"cmd": f"make {number}"})})
        found.append({"type": "function_call_output", "call_id": f"{thread}{number}", "output": output})
    return found


def send(
    proxy: RunningProxy,
    listed: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    model: str = "gpt-5.4",
    **headers: str,
) -> Any:
    """Send a request of thread `main`, unless the headers name another."""
    body = {"model": model, "input": listed, "tools": [SHELL, OURS] if tools is None else tools, "stream": True}
    named = {"session-id": "main", "thread-id": "main", **{name.replace("_", "-"): v for name, v in headers.items()}}
    response = proxy.http.post(f"{proxy.url}/v1/responses", content=json.dumps(body).encode(), headers=named)
    proxy.settle()
    return response


def placeholders(provider: CachingProvider) -> list[str]:
    """The calls whose outputs were placeholders in the last request."""
    sent = provider.asked[-1].body["input"]
    return [each["call_id"] for each in sent if "get_archived_output" in str(each.get("output"))]


def pruned(proxy: RunningProxy, turns: int = 8) -> None:
    """Let a conversation be pruned because its cache is cold."""
    send(proxy, items(turns - 1))
    proxy.clock.now += COLD
    send(proxy, items(turns))


def test_what_was_shown_stays_and_nothing_more_leaves_while_the_retrieval_tool_is_not_offered(
    proxy: RunningProxy,
) -> None:
    pruned(proxy)
    before = placeholders(proxy.provider)
    for turns in (9, 10):
        proxy.clock.now += COLD
        send(proxy, items(turns), [SHELL])
        assert placeholders(proxy.provider) == before
    in_stash(proxy.database, lambda stash: stash.prune_tool_outputs("main", keep_last=1))
    send(proxy, items(10), [SHELL])
    assert placeholders(proxy.provider) == before
    send(proxy, items(10))
    assert len(placeholders(proxy.provider)) == 9


def test_a_sub_agent_has_a_session_of_its_own_below_its_parent(proxy: RunningProxy) -> None:
    main = send(proxy, items(2))
    below = send(proxy, items(1, thread="s"), thread_id="sub", x_codex_parent_thread_id="main")
    again = send(proxy, items(3))
    named = [each.headers["x-contextstash-session"] for each in (main, below, again)]
    assert named == ["main", "sub", "main"]
    assert (proxy.state("main").requests, proxy.state("sub").requests) == (2, 1)
    below_main = in_stash(proxy.database, lambda stash: stash.store.get_session("sub"))
    assert below_main.parent_session_id == "main"


def test_the_clients_own_summary_without_tools_keeps_the_placeholders(proxy: RunningProxy) -> None:
    pruned(proxy)
    before = placeholders(proxy.provider)
    text = {"type": "input_text", "text": SUMMARIZE}
    response = send(proxy, [*items(8), {"type": "message", "role": "user", "content": [text]}], [])
    assert response.headers["x-contextstash-session"] == "main"
    assert placeholders(proxy.provider) == before != []


DETAILS = {"type": "invalid_request_error", "code": "context_length_exceeded", "message": TOO_LONG}
FAILED = {"type": "response.failed", "response": {"error": DETAILS}}
ERROR = {"type": "error", "error": DETAILS, "sequence_number": 2}


@pytest.mark.parametrize("refusal", [FAILED, ERROR])
def test_a_request_that_is_refused_as_too_long_within_the_stream_is_healed(
    proxy: RunningProxy, refusal: dict[str, Any]
) -> None:
    def events(body: dict[str, Any]) -> list[dict[str, Any]]:
        return [*reply_events(body)[:2], refusal] if len(json.dumps(body)) > 60_000 else reply_events(body)

    proxy.provider.responses_events = events
    response = send(proxy, items(8))
    assert b"response.completed" in response.content
    assert b"context_length_exceeded" not in response.content
    assert response.content.count(b"event: response.created") == 1
    assert proxy.state("main").edited == 1


def test_an_edited_request_that_is_refused_within_the_stream_is_sent_unedited(proxy: RunningProxy) -> None:
    refusal = {"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "some rule"}}}

    def events(body: dict[str, Any]) -> list[dict[str, Any]]:
        return (
            [*reply_events(body)[:2], refusal]
            if "get_archived_output, handle" in json.dumps(body)
            else reply_events(body)
        )

    proxy.provider.responses_events = events
    pruned(proxy)
    assert placeholders(proxy.provider) == []
    assert "status 400" in str(proxy.state("main").left_alone)


def test_a_failure_that_is_not_about_the_request_reaches_the_client_as_it_is(proxy: RunningProxy) -> None:
    failure = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "try again"}}}
    proxy.provider.responses_events = lambda body: [*reply_events(body)[:2], failure]
    response = send(proxy, items(2))
    assert b"server_error" in response.content
    assert len(proxy.provider.asked) == 1


def program_items(turns: int) -> list[dict[str, Any]]:
    """A conversation as Codex writes it for GPT-6: tools in an item of the input, and one that takes a program."""
    description = "All nested tools are available on the global `tools` object; `ALL_TOOLS` lists those omitted here."
    functions = {"type": "namespace", "name": "functions", "tools": [
        {"type": "custom", "name": "exec", "description": description}
    ]}  # fmt: skip
    found: list[dict[str, Any]] = [{"type": "additional_tools", "role": "developer", "tools": [functions]}, PROMPT]
    found.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]})
    for number in range(turns):
        text = "".join(f"line {number}-{k}\n" for k in range(900))
        program = f"text(await tools.exec_command({{cmd: 'cat {number}'}}))"
        found.append({"type": "custom_tool_call", "call_id": f"p{number}", "name": "exec", "input": program})
        output = [{"type": "input_text", "text": text}]
        found.append({"type": "custom_tool_call_output", "call_id": f"p{number}", "output": output})
    return found


@pytest.mark.parametrize("configured", [True, False])
def test_tools_in_the_input_and_results_of_programs_are_known_if_the_client_has_our_server(
    provider: CachingProvider, clock: Clock, tmp_path: Path, configured: bool
) -> None:
    with running_proxy(provider, tmp_path / "stash.db", clock, configured=configured) as proxy:
        send(proxy, program_items(9), tools=[], **{"thread-id": "gpt6"})
        clock.now += COLD
        send(proxy, program_items(10), tools=[], **{"thread-id": "gpt6"})
        assert proxy.state("gpt6").requests == 2
    pruned = [
        item for item in provider.asked[-1].body["input"] if "get_archived_output" in json.dumps(item.get("output", ""))
    ]
    assert bool(pruned) == configured
    assert all(item["type"] == "custom_tool_call_output" for item in pruned)


@pytest.mark.parametrize(
    ("model", "reasoning", "is_pruned"),
    [("gpt-6.2-sol", True, False), ("gpt-6.2-sol", False, True), ("gpt-6.1-sol", True, True), ("gpt-7", True, False)],
)
def test_what_was_sent_is_pruned_only_if_no_bound_reasoning_follows(
    proxy: RunningProxy, model: str, reasoning: bool, is_pruned: bool
) -> None:
    """GPT from 6.2 on binds its reasoning to what stands before it, and drops it silently if that changes."""
    for turns in (7, 8):
        send(proxy, items(turns, reasoning=reasoning), model=model)
        proxy.clock.now += COLD
    assert ("t0" in placeholders(proxy.provider)) is is_pruned


SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVk/+=="}
"""What OpenAI's own compaction leaves of a conversation: only its provider can read it."""


@pytest.mark.parametrize("model", ["gpt-5.4", "gpt-6.2-sol"])
def test_an_item_of_openais_compaction_goes_on_and_is_recorded_as_it_came(proxy: RunningProxy, model: str) -> None:
    send(proxy, items(3), model=model)
    send(proxy, [*items(3), {"type": "compaction_trigger"}], model=model)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Ym91bmQ="}
    window = [*items(0), SEALED, *items(9, thread="n")[2:]]
    window.insert(13, reasoning)  # in front of the call n5
    for count in range(len(window) - 4, len(window) + 1, 2):
        proxy.clock.now += COLD
        send(proxy, window[:count], model=model)
    sent = proxy.provider.asked[-1].body["input"]
    assert (sent[2], sent[13]) == (SEALED, reasoning)
    assert ("n0" in placeholders(proxy.provider)) is (model == "gpt-5.4")
    assert sent[:14] == window[:14] or model == "gpt-5.4", "something in front of bound reasoning was changed"
    assert proxy.state("main").requests == 5
    recorded = conversation_in(proxy.database, "main")
    assert recorded == window
    assert {"type": "compaction_trigger"} not in recorded


async def test_the_calls_of_its_session_are_listed_with_what_the_provider_reported(proxy: RunningProxy) -> None:
    """Its replies end with a call, an item without a role."""
    for turns in range(4):
        send(proxy, items(turns))
    async with Stash(await open_sqlite(proxy.database)) as stash:
        listed = await stash.store.read_log("main", Call)
    reported = [reply_events(asked.body)[-1]["response"]["usage"]["input_tokens"] for asked in proxy.provider.asked]
    assert [call.prompt_tokens for call in listed] == reported[:3]
