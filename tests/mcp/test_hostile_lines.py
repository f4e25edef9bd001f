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
import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import PARSE_ERROR

from contextstash.mcp.answers import sendable, with_whole_characters
from tests.support.servers import INITIALIZE, READY, http_server, local_token, stdio_command, talking

pytestmark = pytest.mark.processes

PING = b'{"jsonrpc":"2.0","id":77,"method":"ping"}'
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


REFUSED: dict[str, bytes] = {
    "nested 250 deep": recording(b"[" * 250 + b"]" * 250),
    "nested 100,000 deep": recording(b"[" * 100_000 + b"]" * 100_000),
    "an integer of 5,000 digits": recording(b"9" * 5_000),
    "broken JSON": recording(b"{bad"),
    "JSON cut off": recording(b'"x"')[:-3],
    "a batch": b"[" + recording(b"1") + b"]",
    "a number for a method": b'{"jsonrpc":"2.0","id":"x","method":5}',
    "no version": b'{"id":9,"method":"tools/list"}',
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
    answer: dict[str, Any] = json.loads(process.stdout.readline(), parse_constant=pytest.fail)
    return answer


def posted(address: str, body: bytes) -> dict[str, Any]:
    """The message of the response to a body."""
    headers = {
        **AUTHORIZATION,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
    }
    answer = httpx2.post(address, content=body, headers=headers, timeout=60)
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        [text] = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    message: dict[str, Any] = json.loads(text, parse_constant=pytest.fail)
    return message


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"authorization": "Bearer cst_guessed"}, 401),
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_a_line_that_is_not_a_request_gets_an_error(process: subprocess.Popen[bytes], line: bytes) -> None:
    answer = response_to(process, line)
    assert answer["error"]["code"] == PARSE_ERROR
    assert "is not a JSON-RPC message" in answer["error"]["message"]
    assert SECRET not in answer["error"]["message"]
    assert response_to(process, PING) == {"jsonrpc": "2.0", "id": 77, "result": {}}


def test_a_refused_line_is_logged_without_its_contents(tmp_path: Path) -> None:
    lines = b"".join(line + b"\n" for line in REFUSED.values())
    done = subprocess.run(stdio_command(tmp_path / "s.db"), input=lines, capture_output=True, timeout=60, check=True)
    logged = done.stderr.decode()
    assert logged.count(" was refused: ") == len(REFUSED)
    assert "Traceback" not in logged
    assert SECRET not in logged
    assert len(done.stdout.splitlines()) == len(REFUSED)


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e400"])
def test_a_number_that_is_not_json_is_refused_by_the_tool(process: subprocess.Popen[bytes], number: bytes) -> None:
    result = response_to(process, recording(number))["result"]
    assert result["isError"]
    assert "NaN or an infinity" in result["content"][0]["text"]


HALF = "half emoji \ud83d and the other half \ude00"
WHOLE = "half emoji \ufffd and the other half \ufffd"


def call(tool: str, **arguments: Any) -> bytes:
    """A tool call, with halves of surrogate pairs as escapes."""
    params = {"name": tool, "arguments": {"session_id": "halves", **arguments}}
    return json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).encode()


def check_halves(send: Any) -> None:
    """Halves of surrogate pairs become U+FFFD; numbers stay as they were."""
    numbers = [-0.0, 5e-324, 1.7976931348623157e308, 10**4_000, 2**63]
    messages = [
        {"role": "user", "content": HALF, "numbers": numbers},
        {"role": "assistant", "content": "", "\udc00 as a name": HALF},
    ]
    recorded = send(call("record_messages", messages=messages))["result"]
    assert recorded["structuredContent"]["recorded"] == len(messages)
    read = b'{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"context://sessions/halves/messages"}}'
    [first, second] = json.loads(send(read)["result"]["contents"][0]["text"])["messages"]
    assert repr(first["message"]) == repr({"role": "user", "content": WHOLE, "numbers": numbers})
    assert second["message"]["\ufffd as a name"] == WHOLE
    for tool, arguments in (
        ("get_context", {}),
        ("search_history", {"query": HALF}),
        ("estimate_context", {}),
        ("compact_session", {"summary": f"Done: {HALF}"}),
    ):
        result = send(call(tool, **arguments))["result"]
        assert not result["isError"], (tool, result)


@pytest.mark.timeout(60)
def test_halves_of_surrogate_pairs_become_whole_characters_over_stdio(process: subprocess.Popen[bytes]) -> None:
    check_halves(lambda line: response_to(process, line))


def test_halves_of_surrogate_pairs_become_whole_characters_over_http(address: str) -> None:
    check_halves(lambda body: posted(address, body))


any_text = st.text(st.characters(), max_size=20)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | any_text,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(any_text, children, max_size=4),
    max_leaves=12,
)


@given(any_json)
def test_every_converted_value_can_be_sent(value: Any) -> None:
    assert pydantic_core.from_json(pydantic_core.to_json(sendable(value))) == sendable(value)


@given(any_json)
def test_a_document_with_halves_becomes_one_that_is_utf_8_and_another_stays(value: Any) -> None:
    document = json.dumps(value).encode()
    assert pydantic_core.from_json(with_whole_characters(document)) == sendable(value)
