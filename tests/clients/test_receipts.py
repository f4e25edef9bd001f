"""What `status` says that a real client's run cost is what the provider on loopback billed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from contextstash.configuration.models import price_of
from contextstash_storage.records import Usage
from tests.clients.test_windows import SECONDS, claude, codex, contextstash
from tests.support.coding_provider import Asked, CodingProvider, coding_provider

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]

REPLY_TOKENS = 5


def billed(asked: Asked) -> float:
    """The list price of a request as the provider reported it, in US dollars."""
    cost = price_of(asked.body["model"], Usage(prompt_tokens=asked.tokens, completion_tokens=REPLY_TOKENS))
    assert cost is not None
    return cost


@pytest.mark.parametrize("start", [claude, codex])
def test_the_report_of_a_run_is_what_the_provider_billed(
    tmp_path: Path, start: Callable[[Path, CodingProvider], object]
) -> None:
    with coding_provider("seq 1 2500", 14) as provider:
        start(tmp_path, provider)
    listed = json.loads(contextstash(tmp_path, "sessions", "--json").stdout)["sessions"]
    reports = [
        report
        for line in listed
        if (report := json.loads(contextstash(tmp_path, "status", line["session_id"], "--json").stdout).get("proxy"))
    ]
    assert sum(report["tokens_sent"] for report in reports) == pytest.approx(
        sum(asked.tokens for asked in provider.asked), rel=0.01
    )
    paid = sum(report["dollars_paid"] for report in reports)
    assert paid == pytest.approx(sum(map(billed, provider.asked)), rel=0.01)
    unedited = paid + sum(report["dollars_saved"] for report in reports)
    assert 0 < unedited < 3 * paid
