"""Conversations in each format: generated, valid or broken as sessions break; those of the real sessions next to the
repository, if they are there; and arbitrary JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from contextstash.clients.pi import READER
from contextstash.clients.transcripts import split_lines
from contextstash.messages.detection import get_format
from contextstash_storage.records import Message, Native
from tests.support.effort import sample

FORMAT_NAMES = ("openai-chat", "openai-responses", "anthropic", "gemini")

Draw = Callable[[st.SearchStrategy[Any]], Any]

WORDS = (
    "fix the failing test in src/app/models.py",
    "Traceback (most recent call last): KeyError: 'user_id'",
    "total 48\ndrwxr-xr-x 2 dev dev 4096 Nov 20 10:12 src",
    "Ändere die Datei bitte; 日本語のテキスト 🙂",
    "class Session:\n    def close(self) -> None:\n        self._open = False",
    "12 passed, 1 failed in 0.31s",
    '{"id": 7, "tags": ["a", "b"], "ok": true}',
    "d41d8cd98f00b204e9800998ecf8427e  build/app.tar.gz",
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

words = st.sampled_from(WORDS)
texts = st.one_of(
    words,
    st.lists(words, min_size=2, max_size=4).map("\n".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip),
)
long_texts = st.tuples(words, st.integers(20, 300)).map(
    lambda pair: "\n".join(f"{line}: {pair[0]}" for line in range(pair[1]))
)
outputs = st.one_of(texts, st.just(""), long_texts)
tool_calls: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.tuples(st.just("Read"), texts.map(lambda path: {"file_path": path, "limit": 50})),
    st.tuples(st.just("Bash"), texts.map(lambda command: {"command": command, "timeout": 10_000})),
    st.tuples(st.just("search"), texts.map(lambda query: {"query": query, "options": {"deep": [1, None]}})),
    st.tuples(st.just("now"), st.just({})),
)


class Ids:
    """Call ids as agents make them: unique ones, or short ones that start again in each turn."""

    def __init__(self, reused: bool) -> None:
        self._reused = reused
        self._turn = 0
        self._call = 0

    def next_turn(self) -> int:
        self._turn += 1
        if self._reused:
            self._call = 0
        return self._turn

    def next_call(self) -> str:
        self._call += 1
        return f"call_{self._call}"


@st.composite
def conversations(draw: Draw, format_name: str, broken: bool = False, min_turns: int = 1) -> list[Native]:
    """A conversation in that format. If it is not broken, it is a valid request as it stands (but that
    Anthropic's holds no system message). A broken one has been interrupted, reordered, cut or recorded
    twice in places, and carries what replies carry (usage, ids, …)."""
    ids = Ids(reused=draw(st.booleans()))
    turn = _TURNS[format_name]
    natives = list(_HEADS[format_name](draw))
    for _ in range(draw(st.integers(min_turns, 6))):
        natives += turn(draw, ids)
    return draw(breakings(natives, format_name)) if broken else natives


@st.composite
def breakings(draw: Draw, natives: Sequence[Native], format_name: str) -> list[Native]:
    """The natives with up to five things gone wrong, each at some place."""
    broken = copy.deepcopy(list(natives))
    for _ in range(draw(st.integers(1, 5))):
        if not broken:
            break
        place = draw(st.integers(0, len(broken) - 1))
        kind = draw(st.sampled_from(("drop", "drop", "swap", "twice", "cut", "late", "speak", "reply")))
        if kind == "drop":
            del broken[place]
        elif kind == "swap" and place:
            broken[place - 1], broken[place] = broken[place], broken[place - 1]
        elif kind == "twice":
            broken.insert(place, copy.deepcopy(broken[place]))
        elif kind == "cut":
            broken = broken[place:]
        elif kind == "late":
            broken.append(broken.pop(place))
        elif kind == "speak":
            broken.insert(place, get_format(format_name).user_message(draw(st.sampled_from(("hm", " ", "")))))
        else:
            broken[place] = {**broken[place], **_reply_keys(draw, format_name, broken[place])}
    return broken


def _reply_keys(draw: Draw, format_name: str, native: Native) -> Native:
    if format_name == "gemini":
        return {"usageMetadata": {"promptTokenCount": 120, "candidatesTokenCount": 7}, "modelVersion": "gemini-3-pro"}
    if format_name != "anthropic":
        return {"usage": {"prompt_tokens": 120, "completion_tokens": 7}}
    if native.get("role") != "assistant":
        return {}
    reply = {"id": f"msg_{draw(st.integers(1, 3))}", "type": "message", "model": "claude-opus-4-5"}
    return {**reply, "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 9}}


def _anthropic_head(draw: Draw) -> list[Native]:
    return [{"role": "user", "content": draw(texts)}]


def _anthropic_turn(draw: Draw, ids: Ids) -> list[Native]:
    """An assistant message, its calls' results, and mostly a user message."""
    turn = ids.next_turn()
    calls = [(ids.next_call(), *draw(tool_calls)) for _ in range(draw(st.integers(0, 3)))]
    content: list[dict[str, Any]] = []
    thinking = draw(st.sampled_from(("none", "signed", "omitted", "redacted")))
    if thinking in ("signed", "omitted"):
        thought = draw(texts) if thinking == "signed" else ""
        content.append({"type": "thinking", "thinking": thought, "signature": f"c2lnbmF0dXJl{turn}"})
    elif thinking == "redacted":
        content.append({"type": "redacted_thinking", "data": f"ZGF0YQ{turn}"})
    if draw(st.booleans()):
        content += _anthropic_search(turn)
    if not calls or draw(st.booleans()):
        content.append({"type": "text", "text": draw(texts)})
    content += [{"type": "tool_use", "id": id_, "name": name, "input": given} for id_, name, given in calls]
    only_text = [block["type"] for block in content] == ["text"]
    reply = {"role": "assistant", "content": content[0]["text"] if only_text and turn % 2 else content}
    results = [_anthropic_result(draw, call_id) for call_id, _, _ in draw(st.permutations(calls))]
    said = [draw(_anthropic_user_blocks)] if not calls or draw(st.booleans()) else []
    system = [{"role": "system", "content": draw(texts)}] if draw(st.booleans()) else []
    return [reply, {"role": "user", "content": [*results, *said]}, *system]


def _anthropic_search(turn: int) -> list[dict[str, Any]]:
    found = {"type": "web_search_result", "url": "https://example.org", "encrypted_content": "ZW5j"}
    call_id = f"srvtoolu_{turn}"
    return [
        {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": call_id, "content": [found]},
    ]


_anthropic_image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
_anthropic_user_blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    st.just(_anthropic_image),
    texts.map(
        lambda text: {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": text},
            "title": "notes",
        }
    ),
    st.just({"type": "container_upload", "file_id": "file_1"}),
    st.just({"type": "block_of_tomorrow", "payload": {"a": [1, 2]}}),
)


def _anthropic_result(draw: Draw, call_id: str) -> dict[str, Any]:
    content: object = draw(outputs)
    shape = draw(st.sampled_from(("string", "parts", "image", "error", "none")))
    if shape == "parts":
        content = [{"type": "text", "text": draw(texts)}, {"type": "text", "text": draw(texts)}]
    elif shape == "image":
        content = [{"type": "text", "text": draw(texts)}, _anthropic_image]
    result = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if shape == "none":
        del result["content"]
    return {**result, "is_error": True} if shape == "error" else result


def _chat_head(draw: Draw) -> list[Native]:
    role = draw(st.sampled_from(("system", "developer", None)))
    system = [{"role": role, "content": draw(texts)}] if role else []
    return [*system, {"role": "user", "content": draw(texts)}]


def _chat_turn(draw: Draw, ids: Ids) -> list[Native]:
    ids.next_turn()
    kind = draw(st.sampled_from(("text", "calls", "calls", "refusal", "custom")))
    if kind == "text":
        reply: Native = {"content": draw(texts), "role": "assistant"}
        if draw(st.booleans()):
            reply["reasoning_content"] = draw(texts)
        return [reply, _chat_user(draw)]
    if kind == "refusal":
        return [{"role": "assistant", "content": None, "refusal": "I can't do that."}, _chat_user(draw)]
    calls = [_chat_call(ids.next_call(), draw(tool_calls), kind) for _ in range(draw(st.integers(1, 3)))]
    content = draw(st.one_of(st.none(), texts))
    results = [_chat_result(draw, call["id"]) for call in draw(st.permutations(calls))]
    said = [_chat_user(draw)] if draw(st.booleans()) else []
    return [{"role": "assistant", "content": content, "tool_calls": calls}, *results, *said]


def _chat_call(call_id: str, called: tuple[str, dict[str, Any]], kind: str) -> dict[str, Any]:
    name, given = called
    if kind == "custom":
        custom = {"name": name, "input": "*** Begin Patch\n*** Update File: a.py\n*** End Patch"}
        return {"id": call_id, "type": "custom", "custom": custom}
    function = {"name": name, "arguments": json.dumps(given)}
    return {"id": call_id, "type": "function", "function": function}


def _chat_result(draw: Draw, call_id: str) -> Native:
    content: object = draw(outputs)
    if draw(st.booleans()):
        content = [{"type": "text", "text": draw(texts)}, {"type": "text", "text": draw(texts)}]
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _chat_user(draw: Draw) -> Native:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    part = draw(st.sampled_from((None, None, image, audio, {"type": "part_of_tomorrow", "a": 1})))
    text = draw(texts)
    content = text if part is None else [{"type": "text", "text": text}, part]
    return {"role": "user", "content": content}


def _responses_head(draw: Draw) -> list[Native]:
    system = [{"role": "developer", "content": draw(texts)}] if draw(st.booleans()) else []
    return [*system, {"role": "user", "content": draw(texts)}]


def _responses_turn(draw: Draw, ids: Ids) -> list[Native]:
    turn = ids.next_turn()
    items: list[Native] = []
    if draw(st.booleans()):
        summary = [{"type": "summary_text", "text": draw(texts)}] if draw(st.booleans()) else []
        reasoning = {"type": "reasoning", "id": f"rs_{turn}", "summary": summary}
        items.append({**reasoning, "encrypted_content": "Z0FBQUFB"} if draw(st.booleans()) else reasoning)
    if draw(st.booleans()):
        action = {"type": "search", "query": draw(texts)}
        items.append({"type": "web_search_call", "id": f"ws_{turn}", "status": "completed", "action": action})
    calls = [_responses_call(draw, ids.next_call(), *draw(tool_calls)) for _ in range(draw(st.integers(0, 3)))]
    if not calls or draw(st.booleans()):
        part = draw(
            st.one_of(
                texts.map(lambda text: {"type": "output_text", "text": text, "annotations": []}),
                texts.map(lambda text: {"type": "refusal", "refusal": text}),
            )
        )
        items.append({"type": "message", "role": "assistant", "content": [part], "id": f"msg_{turn}"})
    outputs = [_responses_output(draw, call) for call in draw(st.permutations(calls))]
    if calls and draw(st.booleans()):
        about = {"id": f"prg_{turn}", "call_id": f"program_{turn}"}
        caller = {"type": "program", "caller_id": f"program_{turn}"}
        items.append({"type": "program", **about, "code": "tools.now()", "fingerprint": "Z0FB"})
        calls = [{**call, "caller": caller} if call["type"] == "function_call" else call for call in calls]
        outputs.append({"type": "program_output", **about, "result": draw(texts), "status": "completed"})
    items += calls + outputs
    if not calls or draw(st.booleans()):
        items.append(_responses_user(draw))
    return items


def _responses_call(draw: Draw, call_id: str, name: str, given: dict[str, Any]) -> Native:
    kind = draw(st.sampled_from(("function_call", "custom_tool_call", "local_shell_call", "computer_call")))
    call = {"type": kind, "call_id": call_id}
    if kind == "function_call":
        return {**call, "name": name, "arguments": json.dumps(given), "status": "completed"}
    if kind == "custom_tool_call":
        return {**call, "name": name, "input": draw(texts)}
    if kind == "local_shell_call":
        return {**call, "id": f"lsh_{call_id}", "action": {"type": "exec", "command": ["bash", "-lc", "ls"]}}
    return {**call, "action": {"type": "screenshot"}, "pending_safety_checks": []}


def _responses_output(draw: Draw, call: Native) -> Native:
    output: object = draw(outputs)
    if call["type"] == "computer_call":
        output = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PIXEL}"}
    elif draw(st.booleans()):
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
        output = [{"type": "input_text", "text": draw(texts)}, image]
    return {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": output}


def _responses_user(draw: Draw) -> Native:
    image = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}
    part = draw(st.sampled_from((None, image, {"type": "part_of_tomorrow", "a": 1})))
    content = [{"type": "input_text", "text": draw(texts)}, *([part] if part else [])]
    return {"type": "message", "role": "user", "content": content}


def _gemini_head(draw: Draw) -> list[Native]:
    return [{"role": "user", "parts": [{"text": draw(texts)}]}]


def _gemini_turn(draw: Draw, ids: Ids) -> list[Native]:
    """A content of the model, the responses to its calls, and mostly a content of the user."""
    turn = ids.next_turn()
    sdk, named = draw(st.booleans()), draw(st.booleans())
    parts: list[dict[str, Any]] = []
    if draw(st.booleans()):
        parts.append({"text": draw(texts), "thought": True})
    if draw(st.booleans()):
        parts += _gemini_code(draw, sdk)
    calls = [(ids.next_call() if named else None, *draw(tool_calls)) for _ in range(draw(st.integers(0, 3)))]
    if not calls or draw(st.booleans()):
        parts.append({"text": draw(st.one_of(texts, st.just(""))), _key("thoughtSignature", sdk): f"c2ln{turn}text"})
    for place, (call_id, name, given) in enumerate(calls):
        call = {"name": name, "args": given, **({"id": call_id} if call_id else {})}
        signed = {} if place else {_key("thoughtSignature", sdk): f"c2ln{turn}=="}
        parts.append({_key("functionCall", sdk): call, **signed})
    contents: list[Native] = [{"role": "model", "parts": parts} if turn % 2 else {"parts": parts, "role": "model"}]
    answered = draw(st.permutations(calls)) if named else calls
    if calls:
        responses = [_gemini_response(draw, call_id, name, sdk) for call_id, name, _ in answered]
        beside = draw(st.lists(_gemini_user_parts, max_size=2)) if draw(st.booleans()) else []
        contents.append({"role": "user", "parts": [*beside[1:], *responses, *beside[:1]]})
    for _ in range(draw(st.integers(0 if calls else 1, 2))):
        contents.append({"role": "user", "parts": draw(st.lists(_gemini_user_parts, min_size=1, max_size=3))})
    return contents


def _key(name: str, sdk: bool) -> str:
    """The field in the spelling of Google's SDK or in that of the REST API."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name) if sdk else name


def _gemini_code(draw: Draw, sdk: bool) -> list[dict[str, Any]]:
    return [
        {_key("executableCode", sdk): {"language": "PYTHON", "code": "print(2 + 2)"}},
        {_key("codeExecutionResult", sdk): {"outcome": "OUTCOME_OK", "output": draw(texts)}},
    ]


_gemini_image: dict[str, Any] = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
_gemini_user_parts: st.SearchStrategy[dict[str, Any]] = st.one_of(
    texts.map(lambda text: {"text": text}),
    st.just(_gemini_image),
    st.just({"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}}),
    st.just({"inline_data": {"mime_type": "audio/wav", "data": "UklGRg=="}}),
    st.just({"part_of_tomorrow": {"a": [1, 2]}}),
)


def _gemini_response(draw: Draw, call_id: str | None, name: str, sdk: bool) -> dict[str, Any]:
    shape = draw(st.sampled_from(("output", "result", "error", "fields", "mcp", "image")))
    response: dict[str, Any] = {shape: draw(outputs)}
    if shape == "fields":
        response = {"stdout": draw(outputs), "exit_code": 0, "files": [{"path": "a.py"}]}
    elif shape == "mcp":
        response = {"content": [{"type": "text", "text": draw(texts)}], "isError": draw(st.booleans())}
    answer: dict[str, Any] = {**({"id": call_id} if call_id else {}), "name": name, "response": response}
    if shape == "image":
        answer["parts"] = [_gemini_image]
    return {_key("functionResponse", sdk): answer}


_HEADS: dict[str, Callable[[Draw], list[Native]]] = {
    "openai-chat": _chat_head,
    "openai-responses": _responses_head,
    "anthropic": _anthropic_head,
    "gemini": _gemini_head,
}
_TURNS: dict[str, Callable[[Draw, Ids], list[Native]]] = {
    "openai-chat": _chat_turn,
    "openai-responses": _responses_turn,
    "anthropic": _anthropic_turn,
    "gemini": _gemini_turn,
}


def as_messages(format_name: str, natives: Sequence[Native]) -> list[Message]:
    """The natives as recorded messages, bodies included, tokens a quarter of the characters."""
    messages = []
    for seq, native in enumerate(natives):
        found = get_format(format_name).read(native)
        blocks = tuple(block.model_copy(update={"tokens": block.size // 4 + 1}) for block in found.blocks)
        answers = any(block.type == "tool_result" for block in blocks)
        messages.append(
            Message(
                session_id="s",
                seq=seq,
                role=found.role,
                kind="tool_result" if answers else "message",
                blocks=blocks,
                usage=found.usage,
                group=found.group,
                created_at=datetime(2026, 1, 1, tzinfo=UTC),
                body=native,
            )
        )
    return messages


KEYS = (
    "role", "type", "content", "text", "id", "name", "call_id", "tool_call_id", "tool_use_id", "tool_calls",
    "function_call", "function", "custom", "arguments", "input", "output", "thinking", "signature", "summary",
    "usage", "input_tokens", "prompt_tokens", "action", "source", "audio", "refusal", "model", "parts",
    "functionCall", "functionResponse", "function_response", "inlineData", "args", "response", "thought",
    "thoughtSignature",
)  # fmt: skip
STRINGS = (
    "user", "assistant", "system", "tool", "function", "message", "text", "tool_use", "tool_result",
    "thinking", "image", "document", "image_url", "file", "input_text", "reasoning", "function_call",
    "function_call_output", "shell_call_output", "computer_call_output", "web_search_call",
    "mcp_approval_request", "custom", "compaction", "server_tool_use", "model", "", "\ud800", "\x00",
)  # fmt: skip

_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(STRINGS),
    st.text(max_size=8),
)


def _deeper(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.one_of(st.sampled_from(KEYS), st.text(max_size=4))
    return st.one_of(st.lists(values, max_size=3), st.dictionaries(keys, values, max_size=5))


json_values: st.SearchStrategy[Any] = st.recursive(_leaves, _deeper, max_leaves=20)

json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.one_of(st.sampled_from(KEYS), st.text(max_size=4)), json_values, max_size=6
)


TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"


def trace_files() -> list[tuple[str, Path]]:
    """(format name, file) of sessions that hold provider messages, all of them in a thorough run; empty if there are
    no traces."""
    folders = (
        ("openai-chat", "openai_chat/*/*.jsonl"),
        ("anthropic", "claude_code/*.jsonl"),
        ("openai-responses", "codex/*.jsonl"),
        ("anthropic", "pi/*.jsonl"),
    )
    return sample([(name, path) for name, pattern in folders for path in sorted(TRACES.glob(pattern))], quick=12)


def trace_natives(format_name: str, path: Path) -> list[Native]:
    """The provider messages in a trace, in order; lines that are none or are damaged are passed over."""
    if path.parent.name == "pi":
        lines, _ = split_lines(path.read_bytes(), at_end=True)
        batch = READER.read(lines, {}, str(path))
        return [message.body for message in batch.messages] if batch else []
    return [native for record in _records(path) for native in _native(format_name, record)]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue


def _native(format_name: str, record: dict[str, Any]) -> list[Native]:
    if format_name == "openai-chat":
        return [record]
    if format_name == "anthropic":
        is_message = record.get("type") in ("user", "assistant") and not record.get("isSidechain")
        return [record["message"]] if is_message else []
    return [record["payload"]] if record.get("type") == "response_item" else []
