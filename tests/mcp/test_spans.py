"""The MCP SDK's spans of a server over HTTP, as OpenTelemetry's own SDK writes them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.support.servers import (
    answer,
    error,
    http_client,
    http_command,
    local_token,
    small_session,
    started_http_server,
)

pytestmark = pytest.mark.processes

WRITES_SPANS = """
import pathlib
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.trace import set_tracer_provider
spans = pathlib.Path({path!r}).open("a", buffering=1)
written = ConsoleSpanExporter(out=spans, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(written))
set_tracer_provider(provider)
"""


def served_with_spans(database: Path, file: Path) -> list[str]:
    """The command of a server that writes its spans into a file: what `opentelemetry-instrument` sets up."""
    interpreter, option, code, *arguments = http_command(database)
    return [interpreter, option, WRITES_SPANS.format(path=str(file)) + code, *arguments]


async def test_a_call_is_a_span_of_its_clients_trace_and_holds_neither_contents_nor_tokens(tmp_path: Path) -> None:
    traces = TracerProvider().get_tracer("a client")
    database, file = tmp_path / "s.db", tmp_path / "spans"
    with started_http_server(served_with_spans(database, file)) as (process, address):
        secret = local_token(database)
        async with http_client(address, secret) as client:
            with traces.start_as_current_span("a turn") as turn:
                await answer(client, "record_messages", session_id="spans", messages=small_session(1))
                await error(client, "estimate_context", session_id="nobody")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    text = file.read_text()
    spans: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    calls = {span["name"]: span for span in spans if span["name"].startswith("tools/call")}
    assert set(calls) == {"tools/call record_messages", "tools/call estimate_context"}
    sent = turn.get_span_context()
    trace, parent = f"0x{sent.trace_id:032x}", f"0x{sent.span_id:016x}"
    for span in calls.values():
        assert (span["context"]["trace_id"], span["parent_id"], span["kind"]) == (trace, parent, "SpanKind.SERVER")
    assert calls["tools/call estimate_context"]["attributes"]["error.type"] == "tool_error"
    assert not any(hidden in text for hidden in (secret, "careful programmer", "module_0", "nobody", "Bearer"))
