"""What `receipt` says that a real client's run cost is what the provider on loopback billed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from contextstash.window.models import price_of
from contextstash_storage.records import Usage
from tests.clients.test_windows import SECONDS, claude, codex, contextstash
from tests.support.real_clients import CodingProvider, coding_provider

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]

REPLY_TOKENS = 5


def billed(provider: CodingProvider) -> float:
    """The list price of all requests as the provider reported them, in US dollars."""
    prices = [
        price_of(model, Usage(prompt_tokens=tokens, completion_tokens=REPLY_TOKENS))
        for model, tokens in provider.usages
    ]
    assert None not in prices
    return sum(price or 0.0 for price in prices)


@pytest.mark.parametrize("start", [claude, codex])
@pytest.mark.parametrize("options", [(), ("--window", "67k")])
def test_the_receipt_of_a_run_is_what_the_provider_billed(
    tmp_path: Path, start: Callable[..., subprocess.CompletedProcess[str]], options: tuple[str, ...]
) -> None:
    with coding_provider("seq 1 2500", 14) as provider:
        done = start(tmp_path, provider, *options)
    receipt = json.loads(contextstash(tmp_path, "receipt", "--since", "1d", "--json").stdout)
    assert receipt["tokens_billed"] == pytest.approx(sum(tokens for _, tokens in provider.usages), rel=0.01)
    assert receipt["dollars_billed"] == pytest.approx(billed(provider), rel=0.01)
    assert receipt["dollars_without"] <= 3 * receipt["dollars_billed"]
    last = done.stderr.strip().splitlines()[-1].removeprefix("contextstash: ")
    assert last == contextstash(tmp_path, "receipt").stdout.strip().splitlines()[0]
    [main, *_] = json.loads(contextstash(tmp_path, "sessions", "--json").stdout)["sessions"]
    report = json.loads(contextstash(tmp_path, "status", main["session_id"], "--json").stdout)["proxy"]
    assert report["dollars_paid"] == pytest.approx(receipt["dollars_billed"], rel=0.01)
    assert report["dollars_saved"] == pytest.approx(receipt["dollars_saved"], abs=0.001)
