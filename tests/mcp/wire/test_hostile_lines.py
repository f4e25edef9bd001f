"""Lines and bodies that are not requests, or contain what few programs can parse: each gets a response or an error."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types

from contextstash.json.json_text import SEARCHED_BYTES, BadJsonError, strict_value
from contextstash.mcp.wire.json_rpc import MAX_MESSAGE_BYTES, Refusal, found_id, read_message, written
from contextstash.mcp.wire.sendable import has_lone_surrogate
from contextstash.mcp.wire.surrogates import with_placeholders, without_placeholders
from tests.support.json_values import json_values
from tests.support.servers import http_server, local_token, stdio_command, talking

pytestmark = pytest.mark.processes

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
SECRET = "correct horse battery staple"

AUTHORIZATION: dict[str, str] = {}
"""The header with the token of the server that is running."""


def recording(value: bytes) -> bytes:
    """A request line that records this value in a message."""
    start = (
        b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"record_messages","arguments":'
        b'{"session_id":"s","messages":[{"role":"user","content":"'
    )
    return start + SECRET.encode() + b'","id":3,"more":' + value + b"}]}}}"


def id_last(value: bytes) -> bytes:
    """The same request as the TypeScript SDK writes it."""
    return b'{"method":"tools/call","params":{"arguments":{"id":4,"more":' + value + b'}},"jsonrpc":"2.0","id":"nine"}'


REFUSED: dict[str, tuple[bytes, Any, int, str]] = {
    "nested 250 deep": (recording(b"[" * 250 + b"]" * 250), 9, -32600, "200 levels"),
    "nested 100,000 deep": (recording(b"[" * 100_000 + b"]" * 100_000), 9, -32600, "200 levels"),
    "nested, id last": (id_last(b"[" * 100_000 + b"]" * 100_000), "nine", -32600, "200 levels"),
    "an integer of 5,000 digits": (recording(b"9" * 5_000), 9, -32600, "5,000 digits"),
    "a number too large": (recording(b"1e400"), 9, -32600, "1e400"),
    "a negative number too large": (recording(b"-1E+400"), 9, -32600, "-1E+400"),
    "NaN": (recording(b"NaN"), 9, -32700, "NaN is not JSON"),
    "Infinity": (recording(b"-Infinity"), 9, -32700, "-Infinity is not JSON"),
    "broken JSON": (recording(b"{bad"), 9, -32700, "not JSON"),
    "broken JSON, id last": (id_last(b"nothing"), "nine", -32700, "not JSON"),
    "JSON cut off": (recording(b'"x"')[:-3], 9, -32700, "not JSON"),
    "invalid UTF-8": (recording(b'"\xff"'), 9, -32700, "not UTF-8"),
    "half of a surrogate pair in UTF-8": (recording(b'"\xed\xa0\xbd"'), 9, -32700, "not UTF-8"),
    "a batch": (b"[" + recording(b"1") + b"]", 9, -32600, "are not supported"),
    "an empty batch": (b"[]", None, -32600, "are not supported"),
    "an empty line": (b"", None, -32700, "empty"),
    "spaces": (b" \t ", None, -32700, "empty"),
    "no method": (b'{"jsonrpc":"2.0","id":9,"params":{}}', 9, -32600, "'method'"),
    "a number for a method": (b'{"jsonrpc":"2.0","id":"x","method":5}', "x", -32600, "'method'"),
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', None, -32600, "'id'"),
    "id an object": (b'{"jsonrpc":"2.0","id":{"id":5},"method":"tools/list"}', None, -32600, "'id'"),
    "id a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', None, -32600, "'id'"),
    "id half of a pair": (b'{"jsonrpc":"2.0","id":"\\ud83d","method":"tools/list"}', None, -32600, "'id'"),
    "params a list": (b'{"jsonrpc":"2.0","id":9,"method":"tools/list","params":[1]}', 9, -32600, "'params'"),
    "no version": (b'{"id":9,"method":"tools/list"}', 9, -32600, "'jsonrpc'"),
    "a string": (b'"hello"', None, -32600, "object"),
    "half of a pair in a method": (b'{"jsonrpc":"2.0","id":9,"method":"tools/\\ud83d"}', 9, -32600, "surrogate"),
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    with talking(stdio_command(tmp_path_factory.mktemp("stdio") / "s.db")) as started:
        response_to(started, json.dumps(INITIALIZE).encode())
        send_line(started, json.dumps(READY).encode())
        yield started


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    database = tmp_path_factory.mktemp("http") / "s.db"
    with http_server(database) as served:
        AUTHORIZATION["authorization"] = f"Bearer {local_token(database)}"
        yield served


def send_line(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin
    process.stdin.write(line + b"\n")
    process.stdin.flush()


def response_to(process: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
    """The next response of a server process to a line. Without a response, the time limit of the test applies."""
    assert process.stdout
    send_line(process, line)
    answer: dict[str, Any] = strict_value(process.stdout.readline())
    return answer


def posted(
    address: str, body: bytes, version: str = "2025-11-25", kind: str = "application/json"
) -> tuple[int, dict[str, Any]]:
    """The status and the message of the response to a body."""
    headers = {
        **AUTHORIZATION,
        "content-type": kind,
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
    }
    answer = httpx2.post(address, content=body, headers=headers, timeout=60)
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        [text] = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    return answer.status_code, strict_value(text.encode())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost:3000.evil.com"}, 421),
        ({"host": "localhost.evil.com:80"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:3000.evil.com"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain; application/json"}, 400),
        ({"authorization": "Bearer cst_guessed"}, 401),
        ({"authorization": ""}, 401),
    ],
)
def test_a_request_that_may_not_be_made_is_refused_before_its_body_is_read(
    address: str, headers: dict[str, str], status: int
) -> None:
    usual = {"host": address.split("/")[2], "content-type": "application/json", "content-length": "60000000"}
    given = usual | AUTHORIZATION | headers
    target = urlsplit(address)
    connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=30)
    connection.putrequest("POST", target.path, skip_host=True)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders(b"[")  # the rest is never sent
    assert connection.getresponse().status == status
    connection.close()


def test_the_content_type_is_read_without_its_case(address: str) -> None:
    status, answer = posted(
        address, b'{"jsonrpc":"2.0","id":8,"method":"x","params":{"a":"\\ud83d"}}', kind="Application/JSON"
    )
    assert (status, answer["id"], answer["error"]["code"]) == (400, 8, types.INVALID_REQUEST)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("line", "number", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_line_that_is_not_a_request_gets_an_error(
    process: subprocess.Popen[bytes], line: bytes, number: object, code: int, words: str
) -> None:
    answer = response_to(process, line)
    assert answer["id"] == number
    assert answer["error"]["code"] == code
    assert words in answer["error"]["message"]
    assert SECRET not in answer["error"]["message"]
    assert response_to(process, b'{"jsonrpc":"2.0","id":77,"method":"ping"}') == {
        "jsonrpc": "2.0",
        "id": 77,
        "result": {},
    }


@pytest.mark.parametrize(("body", "number", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_body_that_is_not_a_request_gets_the_same_error(
    address: str, body: bytes, number: object, code: int, words: str
) -> None:
    status, answer = posted(address, body)
    assert status == 400
    assert answer["id"] == number
    assert answer["error"]["code"] == code
    assert words in answer["error"]["message"]


def test_a_refused_line_is_logged_without_its_contents(tmp_path: Path) -> None:
    lines = b"".join(line + b"\n" for line, *_ in REFUSED.values())
    done = subprocess.run(stdio_command(tmp_path / "s.db"), input=lines, capture_output=True, timeout=60, check=True)
    logged = done.stderr.decode()
    assert logged.count(" was refused: ") == len(REFUSED)
    assert "Traceback" not in logged
    assert SECRET not in logged
    assert len(done.stdout.splitlines()) == len(REFUSED)


def test_every_request_of_a_batch_gets_its_own_error() -> None:
    batch = json.dumps([{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (4, "five")])
    read = read_message(batch.encode())
    assert isinstance(read, Refusal)
    assert [reply.id for reply in read.replies] == [4, "five"]


def test_a_line_over_the_limit_is_skipped_and_gets_an_error(process: subprocess.Popen[bytes]) -> None:
    answer = response_to(process, recording(b'"' + b"x" * MAX_MESSAGE_BYTES + b'"'))
    assert answer["id"] == 9
    assert "larger than 64 MB" in answer["error"]["message"]
    assert response_to(process, b'{"jsonrpc":"2.0","id":78,"method":"ping"}')["id"] == 78


HALF = "half emoji \ud83d and the other half \ude00"


def call(tool: str, **arguments: Any) -> bytes:
    """A tool call, with halves of surrogate pairs as escapes."""
    params = {"name": tool, "arguments": {"session_id": "halves", **arguments}}
    return json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).encode()


NUMBERS = [-0.0, 0.0, 5e-324, 1.7976931348623157e308, 10**4_000, -(10**400), 2**63]
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": HALF},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": HALF})}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": f"{HALF}\n" * 200},
    {"role": "user", "content": "x", "numbers": NUMBERS, "\udc00 as a name": {"\udc00": HALF}},
]
READ = b'{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"context://sessions/halves/messages"}}'


def check_halves(send: Any) -> None:
    """Record halves of surrogate pairs and unusual numbers, and read them back in each way."""
    assert send(call("record_messages", messages=MESSAGES))["result"]["structuredContent"]["recorded"] == len(MESSAGES)
    page = json.loads(send(READ)["result"]["contents"][0]["text"])
    recorded = [line["message"] for line in page["messages"]]
    assert repr(recorded) == repr(MESSAGES)
    for tool, arguments in (
        ("get_context", {}),
        ("search_history", {"query": HALF}),
        ("search_history", {"query": "emoji"}),
        ("estimate_context", {}),
        ("context_status", {}),
        ("prune_tool_outputs", {"keep_last": 0, "protect_tokens": 0, "minimum_tokens": 0}),
        ("compact_session", {"summary": f"Done: {HALF}"}),
    ):
        result = send(call(tool, **arguments))["result"]
        assert not result["isError"], (tool, result)
    shown = send(call("get_context"))["result"]
    assert shown["structuredContent"]["messages"][0]["content"] == HALF.replace("\ud83d", "\ufffd").replace(
        "\ude00", "\ufffd"
    )
    assert "U+FFFD" in shown["content"][0]["text"]


@pytest.mark.timeout(60)
def test_halves_of_surrogate_pairs_are_kept_and_returned_over_stdio(process: subprocess.Popen[bytes]) -> None:
    check_halves(lambda line: response_to(process, line))


def test_halves_of_surrogate_pairs_are_kept_and_returned_over_http(address: str) -> None:
    check_halves(lambda body: posted(address, body)[1])


def test_an_argument_name_with_half_of_a_pair_is_refused(process: subprocess.Popen[bytes]) -> None:
    result = response_to(process, call("estimate_context", **{"\ud83d": 1}))["result"]
    assert result["isError"]
    assert "There is no argument of estimate_context" in result["content"][0]["text"]


@given(json_values, st.sampled_from([7, "seven"]))
def test_any_value_in_a_call_is_read_unchanged_or_refused(value: Any, number: int | str) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"arguments": {"v": value}}})
    read = read_message(line.encode())
    if isinstance(read, Refusal):
        assert [reply.id for reply in read.replies] == [number]
        assert "Infinity" in line
    else:
        assert isinstance(read, types.JSONRPCRequest)
        assert read.params is not None
        assert repr(read.params["arguments"]["v"]) == repr(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    read = read_message(data)
    assert not isinstance(read, Refusal) or all(reply.error.message for reply in read.replies)


@given(json_values)
def test_placeholders_for_halves_are_replaced_exactly(value: Any) -> None:
    assert not has_lone_surrogate(with_placeholders(value))
    assert repr(without_placeholders(with_placeholders(value))) == repr(value)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4))
def test_a_strict_client_can_read_every_response(result: dict[str, Any]) -> None:
    line = written(types.JSONRPCResponse(jsonrpc="2.0", id=1, result=result))
    assert b"\n" not in line
    assert strict_value(line)["id"] == 1


@given(json_values, st.integers(0, 400))
def test_an_id_is_never_read_from_a_nested_object(value: Any, cut: int) -> None:
    line = json.dumps({"params": {"id": 1, "more": [value, {"id": 2, "jsonrpc": "2.0"}]}, "id": 3})[: cut or None]
    assert found_id(line.encode()) in (None, 3)


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b'{"id":5,"params":"' + b'\\"' * 500_000, 5),
        (b'{"method":"x","params":"' + b'\\"' * 500_000, None),
        (b'{"method":"x","params":"' + b"\\", None),
        (b'{"params":[' + b"[]," * 60_000 + b'[]],"id":5,', None),
    ],
    ids=["escaped quotes behind the id", "escaped quotes", "a backslash at the end", "behind 100,000 brackets"],
)
@pytest.mark.timeout(30)
def test_the_id_of_a_broken_message_is_searched_in_linear_and_bounded_time(line: bytes, number: int | None) -> None:
    refused = read_message(line)
    assert isinstance(refused, Refusal)
    assert [reply.id for reply in refused.replies] == [number]


def test_long_runs_of_digits_are_searched_for_large_numbers_in_linear_time() -> None:
    text = b'{"a": "' + (b"1" * 308 + b"a") * 6_000 + b'"}'
    assert len(strict_value(text)["a"]) == 309 * 6_000


def test_a_message_that_was_cut_off_is_answered_by_its_own_id() -> None:
    line = b'{"method":"tools/call","id":5,"params":{"messages":[{"type":"tool_use","input":{},"id":"toolu_1"}'
    assert found_id(line) == 5


def test_numbers_beyond_a_double_are_refused_at_every_depth() -> None:
    for text in ("1e400", "-1e999", "1" * 400 + ".0", "0.1e1000", "1E+9999"):
        with pytest.raises(BadJsonError):
            strict_value(f'{{"a": [{text}]}}'.encode())
    assert strict_value(b'{"a": "1e400", "b": 1e300, "c": 1e-400}') == {"a": "1e400", "b": 1e300, "c": 0.0}


@pytest.mark.parametrize("number", ["1e400", "-2.5E+999", "1" * 400 + ".0"])
@pytest.mark.parametrize("place", [0, SEARCHED_BYTES - 5, SEARCHED_BYTES - 300, 2 * SEARCHED_BYTES])
def test_a_number_beyond_a_double_is_found_wherever_it_is_in_a_long_message(number: str, place: int) -> None:
    with pytest.raises(BadJsonError, match="a double can be"):
        strict_value(f'{{"a": "{"x" * place}", "b": {number}}}'.encode())
