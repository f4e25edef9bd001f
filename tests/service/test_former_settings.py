"""Settings under their former names are still read, with a warning."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from contextstash.context.tool_outputs.limits import OutputLimits
from contextstash.context.window.settings import resolve_settings
from contextstash.service import session_access
from tests.support.stashes import SESSION, stash_at


def test_a_former_value_is_read_as_what_it_is_called_now() -> None:
    assert resolve_settings({"output_cut": "telling"}) == resolve_settings({"output_cut": "smart"})
    assert OutputLimits().merged({"cut": "telling"}).cut == "smart"


async def test_a_former_value_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session_access._warn_once.cache_clear()
    hello = [{"role": "user", "content": "Hello."}]
    with caplog.at_level(logging.WARNING):
        async with stash_at(tmp_path / "f.db", output_cut="telling") as stash:
            await stash.record_messages(hello, session_id=SESSION)
            await stash.estimate_context(SESSION)
    assert [record.getMessage() for record in caplog.records] == [
        "The value 'telling' of the setting 'output_cut' is now called 'smart'."
    ]
