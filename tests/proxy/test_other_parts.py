"""By setting, inputs of old calls that write leave the requests too, and old images: reversibly, and nothing else."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contextstash.service.stash import Stash
from contextstash_storage.sqlite import open_sqlite
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import (
    ID,
    OLD,
    READ,
    RETRIEVAL,
    Clock,
    placeholders,
    prune_cold,
    request_of,
    running_proxy,
    session,
    turn,
)

RESTORE: dict[str, Any] = {"name": "mcp__contextstash__restore_outputs", "input_schema": {"type": "object"}}
TOOLS = [READ, RETRIEVAL, RESTORE]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAyAAAAJYCAIAAAAVFBUnAAAA" + "A" * 100_000
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
OTHER_IMAGE = copy.deepcopy(IMAGE)
OTHER_IMAGE["source"]["data"] = PNG.replace("AAAyA", "AAAxA")  # type: ignore[index]

Result = TypeVar("Result")

INPUTS = {"prune_inputs": True}
IMAGES = {"prune_images": True}


def text_of(number: int) -> str:
    return "".join(f"def function_{number}_{k}(): pass  # äöü\n" for k in range(400))


def written() -> list[dict[str, Any]]:
    """A session that writes one file twice and another one once, and then reads."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Write the modules."}]
    for number, path in enumerate(("/src/one.py", "/src/two.py", "/src/one.py")):
        call, result = turn(1000 + number, f"{path} has been written.", "Write", path)
        call["content"][0]["input"]["content"] = text_of(number)
        messages += [call, result]
    return messages + session(8)[1:]


def inputs_left_out(body: dict[str, Any]) -> dict[str, str]:
    """The placeholders in inputs of calls, by the path that was written."""
    return {
        block["input"]["file_path"]: block["input"]["content"]
        for message in body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
        if block["type"] == "tool_use" and "[contextstash" in block["input"].get("content", "")
    }


def handle_in(text: str) -> str:
    found = re.search(r"out_\w+", text)
    assert found
    return found.group()


def with_stash(database: Path, work: Callable[[Stash], Coroutine[Any, Any, Result]]) -> Result:
    """The result of another process's stash."""

    async def run() -> Result:
        stash = Stash(await open_sqlite(database))
        try:
            return await work(stash)
        finally:
            await stash.close()

    return asyncio.run(run())


def test_only_tool_outputs_leave_by_default(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as proxy:
        prune_cold(proxy, clock, written(), tools=TOOLS)
        assert placeholders(provider.bodies[-1]) == OLD
        assert inputs_left_out(provider.bodies[-1]) == {}


def test_old_inputs_of_calls_that_write_leave_and_nothing_else_changes(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    messages, database = written(), tmp_path / "stash.db"
    with running_proxy(provider.url, database, clock, settings=INPUTS) as proxy:
        prune_cold(proxy, clock, messages, tools=TOOLS)
        sent = provider.bodies[-1]
        assert placeholders(sent) == OLD
        assert list(inputs_left_out(sent)) == ["/src/one.py"], "the newest text of each file stays"
        shown = inputs_left_out(sent)["/src/one.py"]
        assert "the call itself was made with all of them" in shown
        first = copy.deepcopy(messages[1])
        first["content"][0]["input"]["content"] = shown
        assert sent["messages"][:6] == [messages[0], first, *messages[2:6]]

        page = with_stash(database, lambda stash: stash.get_archived_output(handle_in(shown), max_tokens=8_000))
        assert (page.tool, page.text) == ("Write input", text_of(0))
        view = with_stash(database, lambda stash: stash.get_context(ID))
        assert view.messages[1] == first

    with running_proxy(provider.url, database, clock, settings=INPUTS) as again:
        again.send(request_of(messages, tools=TOOLS))
        assert provider.bodies[-1]["messages"] == sent["messages"]
        restored = with_stash(database, lambda stash: stash.restore_outputs([handle_in(shown)]))
        assert (restored.session_id, [each.handle for each in restored.restored]) == (ID, [handle_in(shown)])
        again.send(request_of(messages, tools=TOOLS))
        assert provider.bodies[-1]["messages"][1] == messages[1]
        assert placeholders(provider.bodies[-1]) == OLD
    with_stash(database, lambda stash: history_is(stash, messages))


CALLS: dict[str, tuple[Callable[[str, str], dict[str, Any]], dict[str, Any]]] = {
    "/v1/chat/completions": (
        lambda name, arguments: {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": name, "type": "function", "function": {"name": "Write", "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": "", "content": ""},
    ),
    "/v1/responses": (
        lambda name, arguments: {"type": "function_call", "call_id": name, "name": "Write", "arguments": arguments},
        {"type": "function_call_output", "call_id": "", "output": ""},
    ),
}


@pytest.mark.parametrize("path", CALLS)
def test_inputs_in_openais_formats_stay_valid_json(
    provider: CachingProvider, clock: Clock, tmp_path: Path, path: str
) -> None:
    make, result = CALLS[path]
    key = "input" if path.endswith("responses") else "messages"
    tool = {"type": "function", "name": "get_archived_output", "function": {"name": "get_archived_output"}}
    listed: list[dict[str, Any]] = [{"role": "user", "content": "Write the modules."}]
    for number in range(4):
        arguments = json.dumps({"file_path": "/src/one.py", "content": text_of(number)})
        listed += [make(f"c{number}", arguments), _answered(result, f"c{number}", "written")]
    with running_proxy(provider.url, tmp_path / "s.db", clock, settings=INPUTS, keep_tokens=1_000) as proxy:
        for count in (len(listed) - 2, len(listed)):
            clock.now += 4_000
            body = {"model": "gpt-5.4", key: listed[:count], "tools": [tool], "prompt_cache_key": "k"}
            codex = {"user-agent": "codex_cli_rs/0.169.0"}
            proxy.http.post(proxy.url + path, content=json.dumps(body).encode(), headers=codex)
            proxy.settle()
    sent = provider.asked[-1].json[key]
    calls = [each.get("arguments") or each["tool_calls"][0]["function"]["arguments"] for each in sent[1::2]]
    found = [json.loads(call) for call in calls]
    assert [each["file_path"] for each in found] == ["/src/one.py"] * 4
    assert ["[contextstash" in each["content"] for each in found] == [True, True, False, False]
    assert sent[2::2] == listed[2::2]


def _answered(result: dict[str, Any], name: str, text: str) -> dict[str, Any]:
    values = {"tool_call_id": name, "call_id": name, "content": text, "output": text}
    return {key: values.get(key, value) for key, value in result.items()}


async def history_is(stash: Stash, messages: list[dict[str, Any]]) -> None:
    """Nothing of the history has changed."""
    assert (await stash.read_conversation(ID))[:-1] == messages[:-1]


def with_images() -> list[dict[str, Any]]:
    """A session that begins with an image of the user and one that a tool shows, each large as text."""
    messages = session(8)
    messages[0] = {"role": "user", "content": [{"type": "text", "text": "Fix this:"}, IMAGE]}
    shown = [{"type": "text", "text": "The page:"}, OTHER_IMAGE]
    call, result = turn(2000, "", "Browser")
    result["content"][0]["content"] = shown
    return [messages[0], call, result, *messages[1:]]


def test_old_images_leave_if_the_client_can_have_them_back(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    messages, database = with_images(), tmp_path / "stash.db"
    with running_proxy(provider.url, database, clock, settings=IMAGES) as proxy:
        prune_cold(proxy, clock, messages, tools=TOOLS)
        sent = provider.bodies[-1]
        own, nested = sent["messages"][0]["content"][1], sent["messages"][2]["content"][0]["content"][1]
        assert own["type"] == nested["type"] == "text"
        assert "restore_outputs" in own["text"]
        assert sent["messages"][0]["content"][0] == messages[0]["content"][0]
        assert sent["messages"][2]["content"][0]["content"][0] == messages[2]["content"][0]["content"][0]
        saved = proxy.state(ID).direct_prompt - proxy.state(ID).prompt
        assert saved < 30_000, "an image takes tokens by its pixels, not by its bytes"

        page = with_stash(database, lambda stash: stash.get_archived_output(handle_in(own["text"])))
        assert "restore_outputs with this handle shows it again" in page.text
        with_stash(database, lambda stash: stash.restore_outputs([handle_in(own["text"])]))
        proxy.send(request_of(messages, tools=TOOLS))
        assert provider.bodies[-1]["messages"][0] == messages[0]
        assert provider.bodies[-1]["messages"][2] == sent["messages"][2]
        assert with_stash(database, lambda stash: stash.get_context(ID)).messages[2] == sent["messages"][2]


def test_images_stay_if_the_client_offers_no_tool_that_brings_them_back(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    messages = with_images()
    with running_proxy(provider.url, tmp_path / "stash.db", clock, settings=IMAGES) as proxy:
        prune_cold(proxy, clock, messages)
        assert provider.bodies[-1]["messages"][:3] == messages[:3]
        assert placeholders(provider.bodies[-1]) != []


def test_nothing_but_outputs_leaves_if_nothing_is_stored(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    messages = written()
    with running_proxy(provider.url, tmp_path / "s.db", clock, settings=INPUTS | IMAGES, record=False) as proxy:
        prune_cold(proxy, clock, messages, tools=TOOLS)
        assert inputs_left_out(provider.bodies[-1]) == {}
