"""Reading the messages of each format, refusing wrong ones, and replacing their outputs, by example."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from contextstash.messages.base import Reading, main_argument, read_usage
from contextstash.messages.detection import get_format
from contextstash.messages.openai import scripted_call
from contextstash.outputs.placeholders import is_own_call
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native, Usage
from tests.messages.natives import (
    ANTHROPIC,
    CHAT,
    CHAT_IMAGE,
    GEMINI,
    IMAGE,
    INLINE_IMAGE,
    INPUT_IMAGE,
    REASONING,
    RESPONSES,
    answering,
    asked,
    assistant,
    call_item,
    calling,
    chat_calls,
    chat_result,
    output_item,
    replied,
    text,
    thinking,
    tool_result,
    tool_use,
    user,
)

READ_CALL = {"functionCall": {"id": "c1", "name": "Read", "args": {"file_path": "a.py"}}, "thoughtSignature": "c2ln"}
PATCH = {"name": "apply_patch", "input": "*** Begin Patch\n*** Update File: src/a.py\n@@"}
NOTES = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "notes"}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
REFUSAL = {"type": "refusal", "refusal": "no"}
WEB_SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}}
FILE_SEARCH = {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"]}
REASONED = {"type": "reasoning", "summary": [text("a", "summary_text")], "content": [text("b", "reasoning_text")]}
LOCAL_SHELL = {"type": "local_shell_call", "call_id": "b", "action": {"command": ["bash", "-lc", "ls -l"]}}
CUSTOM_CALL = chat_calls(tool_calls=[{"id": "a", "type": "custom", "custom": PATCH}])
NAMESPACED = {**call_item("c"), "namespace": "mcp__github", "name": "_fetch_pr"}
SHELL_OUTPUT = {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "x", "stderr": "y"}]}
SCREENSHOT = output_item("a", {"type": "computer_screenshot", "image_url": "x"}, "computer_call_output")


def read(name: str, native: Native) -> Reading:
    return get_format(name).read(native)


def told(found: Reading) -> str:
    """Its role, and the types of its parts."""
    return " ".join([found.role, *(block.type for block in found.blocks)])


def calls(found: Reading) -> list[tuple[str | None, str | None, str | None]]:
    return [(block.call_id, block.tool, block.argument) for block in found.blocks if block.type == "tool_call"]


def test_a_whole_reply_of_anthropic_is_read_with_its_usage_model_and_id() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 7}
    keys = {"id": "msg_1", "type": "message", "model": "claude-opus-4-5", "stop_reason": "tool_use", "usage": usage}
    found = read(ANTHROPIC, assistant(thinking(), text("hi"), tool_use("toolu_1"), **keys))
    assert told(found) == "assistant thinking text tool_call"
    assert found.texts == ("hm", "hi", '{"file_path":"src/a.py"}')
    assert found.usage == Usage(prompt_tokens=115, completion_tokens=7, cached_tokens=100, cache_write_tokens=5)
    assert (found.model, found.group) == ("claude-opus-4-5", "msg_1")
    assert calls(found) == [("toolu_1", "Read", "src/a.py")]


def test_a_whole_reply_of_gemini_is_read_with_its_usage_and_model() -> None:
    usage = {"promptTokenCount": 90, "candidatesTokenCount": 3, "thoughtsTokenCount": 8}
    parts = ({"text": "Let me see", "thought": True}, {"text": "I look."}, READ_CALL)
    found = read(GEMINI, replied(*parts, usageMetadata=usage, modelVersion="gemini-3-pro"))
    assert (told(found), found.model) == ("assistant thinking text tool_call", "gemini-3-pro")
    assert calls(found) == [("c1", "Read", "a.py")]
    assert found.texts == ("Let me see", "I look.", '{"file_path":"a.py"}')
    assert found.usage == Usage(prompt_tokens=90, completion_tokens=11)


KINDS: dict[str, list[tuple[Native, str, tuple[str, ...] | None]]] = {
    ANTHROPIC: [
        (assistant(IMAGE), "assistant image", None),
        (assistant({"type": "document", "source": {"type": "url", "url": "a.pdf"}}), "assistant document", None),
        (assistant({"type": "redacted_thinking", "data": "ZGF0YQ"}), "assistant thinking", None),
        (assistant(SEARCH), "assistant tool_call", None),
        (assistant(FOUND), "assistant opaque", None),
        (assistant({"type": "compaction", "content": None}), "assistant opaque", None),
    ],
    CHAT: [
        ({"role": "developer", "content": "be brief"}, "system text", ("be brief",)),
        (user(text("hi"), CHAT_IMAGE), "user text image", ("hi", "")),
        (user({"type": "file", "file": {"filename": "a.pdf"}}), "user document", ("a.pdf",)),
        ({"role": "assistant", "content": None, "refusal": "no"}, "assistant text", ("no",)),
        (assistant(REFUSAL), "assistant text", ("no",)),
        ({"role": "assistant", "content": "hi", "reasoning_content": "hm"}, "assistant thinking text", ("hm", "hi")),
        (user({"type": "new", "a": 1}), "user opaque", ('{"type":"new","a":1}',)),
        (chat_result("a", [text("x"), CHAT_IMAGE]), "tool tool_result image", ("x", "")),
        (chat_result("a", None), "tool tool_result", ("",)),
    ],
    RESPONSES: [
        ({"role": "user", "content": "go"}, "user text", ("go",)),
        ({"type": "message", "role": "developer", "content": [text("x", "input_text")]}, "system text", ("x",)),
        (assistant(text("x", "output_text"), REFUSAL, type="message"), "assistant text text", ("x", "no")),
        (user(INPUT_IMAGE, {"type": "input_file", "filename": "a.pdf"}), "user image document", ("", "a.pdf")),
        (REASONING, "assistant thinking", ("",)),
        (REASONED, "assistant thinking", ("a\nb",)),
        (call_item("a"), "assistant tool_call", ('{"cmd": "ls"}',)),
        (call_item("a", "custom_tool_call"), "assistant tool_call", ("*** Update File: a.py\n",)),
        (output_item("a", [text("x", "input_text"), INPUT_IMAGE]), "tool tool_result image", ("x", "")),
        (WEB_SEARCH, "assistant tool_call", ('{"query":"x"}',)),
        (FILE_SEARCH, "assistant tool_call", ('{"queries":["q"]}',)),
        ({"type": "compaction", "id": "c"}, "assistant opaque", ('{"type":"compaction","id":"c"}',)),
        ({"type": "item_of_tomorrow", "a": 1}, "assistant opaque", ('{"type":"item_of_tomorrow","a":1}',)),
        (SHELL_OUTPUT, "tool tool_result", ("x\ny",)),
        (SCREENSHOT, "tool image", None),
    ],
    GEMINI: [
        (asked(INLINE_IMAGE), "user image", None),
        (asked({"fileData": {"mimeType": "application/pdf", "fileUri": "a.pdf"}}), "user document", None),
        (replied({"inline_data": {"mime_type": "audio/wav", "data": "A" * 10_000}}), "assistant document", None),
        (replied({"executableCode": {"language": "PYTHON", "code": "print(1)"}}), "assistant tool_call", None),
        (replied({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}), "assistant opaque", None),
    ],
}


@pytest.mark.parametrize(
    ("name", "native", "what", "texts"), [(name, *row) for name, rows in KINDS.items() for row in rows]
)
def test_every_kind_of_part_is_read(name: str, native: Native, what: str, texts: tuple[str, ...] | None) -> None:
    found = read(name, native)
    assert told(found) == what
    assert texts is None or found.texts == texts


@pytest.mark.parametrize(
    ("name", "native"),
    [
        (CHAT, user({"type": "input_audio", "input_audio": {"data": "A" * 90_000, "format": "wav"}})),
        (RESPONSES, {"type": "image_generation_call", "id": "ig_1", "result": "A" * 90_000}),
        (GEMINI, replied({"inline_data": {"mime_type": "audio/wav", "data": "A" * 10_000}})),
    ],
)
def test_encoded_data_is_not_counted_as_text(name: str, native: Native) -> None:
    assert len(read(name, native).texts[0]) < 200


@pytest.mark.parametrize(
    ("name", "native", "expected"),
    [
        (CHAT, chat_calls("a"), ("a", "run", "ls -l")),
        (CHAT, CUSTOM_CALL, ("a", "apply_patch", "src/a.py")),
        (RESPONSES, call_item("a"), ("a", "run", "ls")),
        (RESPONSES, LOCAL_SHELL, ("b", "local_shell", "ls -l")),
        (RESPONSES, NAMESPACED, ("c", "mcp__github_fetch_pr", "ls")),
        (GEMINI, replied({"executableCode": {"code": "print(1)"}}), (None, "code_execution", "print(1)")),
    ],
)
def test_calls_have_names_and_main_arguments(name: str, native: Native, expected: tuple[str | None, ...]) -> None:
    assert calls(read(name, native)) == [expected]


def test_a_tool_result_of_anthropic_is_one_block_with_its_images_and_documents_after_it() -> None:
    native = user(tool_result("toolu_1", [text("one"), IMAGE, text("two"), NOTES]), IMAGE)
    found = read(ANTHROPIC, native)
    assert told(found).split()[1:] == ["tool_result", "image", "document", "image"]
    assert [block.call_id for block in found.blocks] == ["toolu_1", "toolu_1", "toolu_1", None]
    assert found.texts[0] == "one\ntwo"
    assert found.blocks[0].tool is None


@pytest.mark.parametrize(
    ("response", "said", "is_error"),
    [
        ({"output": "line 1\nline 2"}, "line 1\nline 2", False),
        ({"error": "no such file"}, "no such file", True),
        ({"stdout": "a\n", "exit_code": 1}, '{"stdout":"a\\n","exit_code":1}', False),
        ({"content": [text("a"), text("b")], "isError": True}, "a\nb", True),
        ({}, "", False),
    ],
)
def test_a_response_of_gemini_is_read_as_its_text(response: dict[str, Any], said: str, is_error: bool) -> None:
    found = read(GEMINI, answering("Read", response=response))
    assert found.role == "tool"
    assert (found.texts, found.blocks[0].tool, found.blocks[0].is_error) == ((said,), "Read", is_error)


def test_both_spellings_of_gemini_are_read_alike() -> None:
    call = {"name": "Read", "args": {"file_path": "a.py"}}
    unset = {"function_response": None, "text": None, "thought": None, "inline_data": None}
    spelled = replied({**unset, "function_call": {**call, "id": None}, "thought_signature": "x"})
    assert read(GEMINI, spelled) == read(GEMINI, replied({"functionCall": call}))


def test_calls_of_gemini_without_ids_are_paired_by_name_and_number() -> None:
    made = [block.call_id for block in read(GEMINI, calling("Read", "Bash", "Read")).blocks]
    assert made == ["function_call:Read", "function_call:Bash", "function_call:Read#2"]
    assert [block.call_id for block in read(GEMINI, answering("Read", "Bash", "Read")).blocks] == made


WRONG: dict[str, list[tuple[Native, str]]] = {
    ANTHROPIC: [
        ({"content": "hi"}, "role is missing or null; expected 'user' or 'assistant'."),
        (user(text("a"), {"type": "text", "text": 3}), r"content\[1\].text is of type int"),
        (user({"type": "tool_result", "content": "x"}), "tool_use_id is missing"),
        (user(tool_result("a", 3)), "content is of type int"),
        (user({"type": "function_call"}), "a 'function_call' of another format"),
    ],
    CHAT: [
        ({"choices": []}, r"record its choices\[0\].message"),
        ({"role": "user", "content": 5}, "content is of type int"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, r"tool_calls\[0\].function is missing"),
        (user({"type": "tool_result"}), "a 'tool_result' of another format"),
        ({"role": "assistant", "content": None, "audio": {"transcript": "hi"}}, "record the transcript as content"),
        ({"role": "assistant", "content": None, "function_call": {"name": "now"}}, "record it as one of tool_calls"),
    ],
    RESPONSES: [
        ({"content": "hi"}, "neither 'type' nor 'role'"),
        ({"output": [{"role": "user", "content": "go"}]}, "record the items of its `output` one by one"),
        ({"type": "function_call", "name": "f"}, "call_id is missing"),
        ({"type": "item_reference", "id": "fc_1"}, "Record the item itself"),
        (output_item("a", 5), "output is of type int"),
        (user({"type": "tool_use"}), "a 'tool_use' of another format"),
    ],
    GEMINI: [
        ({"candidates": []}, r"record its candidates\[0\].content"),
        ({"role": "assistant", "parts": []}, "role is 'assistant'; expected 'user' or 'model'"),
        ({"role": "user", "content": "x"}, "it has 'content'; expected Gemini's 'parts'"),
        (asked({"type": "text", "text": "x"}), r"parts\[0\] has a 'type'"),
        (asked({"text": "x", "fileData": {}}), r"parts\[0\] has text and fileData"),
        (replied({"functionCall": {"args": {}}}), r"parts\[0\].functionCall.name is missing"),
        (answering("a", response="x"), r"parts\[0\].functionResponse.response is of type str; expected an object"),
    ],
}


@pytest.mark.parametrize(
    ("name", "native", "complaint"), [(name, *row) for name, rows in WRONG.items() for row in rows]
)
def test_what_is_wrong_with_a_message_is_named(name: str, native: Native, complaint: str) -> None:
    with pytest.raises(BadMessageError, match=complaint):
        read(name, native)


def responded(response: dict[str, Any], *more: Native) -> Native:
    """Gemini's response to a call of `Read`."""
    return asked(*answering("Read", response=response)["parts"], *more)


SHELL = {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "x", "outcome": {"type": "timeout"}}]}
SHELL_CUT = {**SHELL, "output": [{"stdout": "short", "stderr": "", "outcome": {"type": "timeout"}}]}
FAILED = {**tool_result("b", [text("long"), IMAGE]), "is_error": True, "cache_control": {"type": "ephemeral"}}
SHOT = {"function_response": {"id": "c", "name": "Shot", "response": {"result": "long"}, "parts": [INLINE_IMAGE]}}
SHOT_CUT = {"function_response": {"id": "c", "name": "Shot", "response": {"result": "short b"}}}
TWO_RESULTS = user(tool_result("a", "long"), FAILED, text("and now?"))
TWO_CUT = user(tool_result("a", "short"), {**FAILED, "content": [text("short b")]}, text("and now?"))
ITEM_PARTS, ITEM_CUT = output_item("a", [text("long", "input_text"), INPUT_IMAGE]), [text("short", "input_text")]
PRINTED, PRINTED_CUT = ({"stdout": "x", "stderr": ""}, {"output": "short"})
REFUSED, REFUSED_CUT = ({"content": [text("no")], "isError": True}, {"error": "short"})


@pytest.mark.parametrize(
    ("name", "native", "expected"),
    [
        (ANTHROPIC, TWO_RESULTS, TWO_CUT),
        (CHAT, {**chat_result("a", "long"), "name": "run"}, {**chat_result("a", "short"), "name": "run"}),
        (CHAT, chat_result("a", [text("long"), CHAT_IMAGE]), chat_result("a", [text("short")])),
        (RESPONSES, {**output_item("a"), "id": "fc_1"}, {**output_item("a", "short"), "id": "fc_1"}),
        (RESPONSES, ITEM_PARTS, output_item("a", ITEM_CUT)),
        (RESPONSES, SHELL, SHELL_CUT),
        (GEMINI, responded(PRINTED, SHOT), responded(PRINTED_CUT, SHOT_CUT)),
        (GEMINI, responded(REFUSED), responded(REFUSED_CUT)),
    ],
)
def test_replacing_keeps_ids_errors_breakpoints_order_and_everything_else_but_media(
    name: str, native: Native, expected: Native
) -> None:
    before = copy.deepcopy(native)
    places = [place for place, block in enumerate(read(name, native).blocks) if block.type == "tool_result"]
    assert get_format(name).replace(native, dict(zip(places, ("short", "short b"), strict=False))) == expected
    assert native == before


@pytest.mark.parametrize(
    ("name", "native", "place"),
    [
        (ANTHROPIC, user(tool_result("a"), text("hi")), 1),
        (CHAT, {"role": "user", "content": "go"}, 0),
        (RESPONSES, SCREENSHOT, 0),
        (GEMINI, asked(SHOT), 1),
    ],
)
def test_only_tool_results_can_be_replaced(name: str, native: Native, place: int) -> None:
    with pytest.raises(BadInputError, match=f"Block {place} of this message is not a tool result"):
        get_format(name).replace(native, {place: "no"})


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"limit": 5, "file_path": "src/a.py", "command": "ls"}, "src/a.py"),
        ({"description": "List files", "command": "ls -l"}, "ls -l"),
        ({"cmd": ["bash", "-lc", "make  test"]}, "make test"),
        ({"n": 3, "reservation": "H8Q05L"}, "H8Q05L"),
        ({"n": 3, "text": "x" * 500}, None),
        ({"command": "echo " + "x" * 500}, f"echo {'x' * 114}…"),
        ('{"query": "why"}', "why"),
        ('{"query": "cut o', '{"query": "cut o'),
        ("*** Begin Patch\n*** Update File: src/b.py\n@@\n", "src/b.py"),
        ("print(1)\nprint(2)", "print(1) print(2)"),
        (None, None),
        ([1, 2], None),
    ],
)
def test_the_main_argument_is_found(arguments: object, line: str | None) -> None:
    assert main_argument(arguments) == line


OPENAI, ITEMS = {"prompt_tokens": 100, "completion_tokens": 9}, {"input_tokens": 100, "output_tokens": 9}
WRITTEN = {"cached_tokens": 64, "cache_write_tokens": 30}
CACHED = {"input_tokens": 4, "output_tokens": 9, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 6}
GEMINIS_USAGE = {"promptTokenCount": 100, "candidatesTokenCount": 9, "totalTokenCount": 146}
GEMINIS_OTHERS = {"cachedContentTokenCount": 64, "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 7}
SNAKE = {"prompt_token_count": 100, "candidates_token_count": 9, "thoughts_token_count": None}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param({**OPENAI, "prompt_tokens_details": {"cached_tokens": 64}}, (100, 9, 64, 0), id="Chat"),
        pytest.param({**OPENAI, "prompt_cache_hit_tokens": 50}, (100, 9, 50, 0), id="DeepSeek"),
        pytest.param({**ITEMS, "input_tokens_details": WRITTEN}, (100, 9, 64, 30), id="Responses"),
        pytest.param({**ITEMS, "cached_input_tokens": 64, "total_tokens": 109}, (100, 9, 64, 0), id="Codex"),
        pytest.param(CACHED, (100, 9, 90, 6), id="Anthropic"),
        pytest.param({**CACHED, **dict.fromkeys(list(CACHED)[2:])}, (4, 9, 0, 0), id="Anthropic, no cache"),
        pytest.param({**GEMINIS_USAGE, **GEMINIS_OTHERS}, (100, 39, 64, 0), id="Gemini"),
        pytest.param(SNAKE, (100, 9, 0, 0), id="Gemini's Python SDK"),
        pytest.param(Usage(prompt_tokens=7, cached_tokens=3).model_dump(), (7, 0, 3, 0), id="our own record"),
        *(({"prompt_tokens": wrong}, None) for wrong in ("many", True, -4, 10**30)),
        ({"tokens": 5}, None),
        ({"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0}, None),
    ],
)
def test_the_usage_of_each_provider_is_read(data: dict[str, Any], found: tuple[int, int, int, int] | None) -> None:
    fields = ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens")
    assert read_usage(data) == (Usage(**dict(zip(fields, found, strict=True))) if found else None)


PATCHED = "*** Begin Patch\n*** Update File: a.py\n@@\n-price\n+`price`\n*** End Patch"
READS = 'const r = await tools.exec_command({cmd: "cat a.py", workdir: "/src", tty: true, prefix_rule: ["cat"]});'
ESCAPED = "const cmd = 'echo \\'a\\'\\n\\x41\\u{e9}';\ntext(await tools.exec_command({cmd, \"workdir\": '/src',}))"
PATCHES = "text(await tools.apply_patch(`" + PATCHED.replace("`", "\\`") + "`));"
RAW = "const patch = String.raw`a\\n`;\nawait tools.apply_patch(patch)"
WRITES = 'tools.write_stdin({session_id: 16678, chars: ""})'
NAMES = "// not tools.apply_patch('x')\ntext(await tools.exec_command({cmd: 'echo tools.apply_patch(1)'}))"


@pytest.mark.parametrize(
    ("script", "call"),
    [
        (f"{READS}\ntext(r.output);", ("exec_command", {"cmd": "cat a.py", "workdir": "/src"})),
        (ESCAPED, ("exec_command", {"cmd": "echo 'a'\nAé", "workdir": "/src"})),
        (PATCHES, ("apply_patch", PATCHED)),
        (RAW, ("apply_patch", "a\\n")),
        (WRITES, ("write_stdin", {"session_id": "16678", "chars": ""})),
        (NAMES, ("exec_command", {"cmd": "echo tools.apply_patch(1)"})),
        # What the tool was given is not known, or several were called.
        ("for (const f of files) text(await tools.exec_command({cmd: 'cat ' + f}))", None),
        ("await Promise.all([tools.exec_command({cmd: 'ls'}), tools.exec_command({cmd: 'pwd'})])", None),
        ("let cmd = 'a'; cmd = 'b'; text(await tools.exec_command({cmd}))", None),
        ("/* tools.exec_command({cmd: 'ls'}) */ text(1)", None),
    ],
)
def test_the_one_call_of_a_script_of_codex_is_read(script: str, call: tuple[str, object] | None) -> None:
    assert scripted_call(script) == call


def test_a_search_by_a_script_is_ours() -> None:
    script = 'text(await tools.mcp__contextstash__search_history({query: "f"}))'
    [block] = read(RESPONSES, {**call_item("c1", "custom_tool_call"), "name": "exec", "input": script}).blocks
    assert is_own_call(block.tool, block.argument)
    assert block.argument == "f"
