"""Responses of a server behind the gateway that few programs can parse: each call gets a result or an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import hostile_upstream
from tests.support.gateways import gateway, text_of, tool_names
from tests.support.hostile_upstream import ANSWERS
from tests.support.loopback_server import served
from tests.support.servers import MODES, Mode

pytestmark = pytest.mark.processes

SERVERS: dict[str, Any] = {"bad": {"command": sys.executable, "args": [str(Path(hostile_upstream.__file__))]}}
REFUSED = sorted(set(ANSWERS) - {"half", "name"})


@pytest.mark.parametrize("mode", MODES)
async def test_half_of_a_surrogate_pair_in_a_response_is_replaced(tmp_path: Path, mode: Mode) -> None:
    async with gateway(tmp_path, SERVERS, mode=mode) as client:
        half = await client.call_tool("half")
        name = await client.call_tool("name")
        assert "half" in await tool_names(client)
    assert text_of(half) == "correct horse \ufffd battery"
    assert name.structured_content == {"\ufffd": "\ufffd"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_response_that_cannot_be_read_is_an_error_and_other_calls_work(
    tmp_path: Path, mode: Mode, capfd: pytest.CaptureFixture[str]
) -> None:
    async with gateway(tmp_path, SERVERS, mode=mode) as client:
        for tool in REFUSED:
            refused = await client.call_tool(tool)
            assert refused.is_error
            assert "cannot be read" in text_of(refused)
            assert text_of(await client.call_tool("half"))
    logged = capfd.readouterr().err
    assert "Traceback" not in logged
    assert "correct horse" not in logged


async def test_a_response_over_http_that_cannot_be_read_is_an_error_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with served(hostile_upstream.Handler) as address:
        async with gateway(tmp_path, {"bad": {"url": f"{address}/mcp"}}, mode="legacy") as client:
            for tool in sorted(ANSWERS):
                refused = await client.call_tool(tool)
                assert refused.is_error
                assert "cannot be read" in text_of(refused)
                assert "correct horse" not in text_of(refused)
            assert "nan" in await tool_names(client)
    logged = capfd.readouterr().err
    assert "Traceback" not in logged
    assert "correct horse" not in logged
