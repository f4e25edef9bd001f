"""Files of messages that other programs write: requests of a provider's API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextstash.clients.follow import ingest
from contextstash.stash import Stash
from tests.support.stashes import history, stash_at


async def imported(stash: Stash, path: Path, document: Any) -> list[dict[str, Any]]:
    """What a file's session holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    report = await ingest(stash, path)
    assert report.session_id
    assert (await ingest(stash, path)).recorded == 0
    return await history(stash, report.session_id)


async def test_a_request_of_responses_is_read_with_its_instructions(tmp_path: Path) -> None:
    request = {
        "model": "gpt-5.2",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}],
    }
    async with stash_at(tmp_path / "q.db") as stash:
        messages = await imported(stash, tmp_path / "request.json", request)
    assert messages == [{"role": "system", "content": "Be brief."}, *request["input"]]


async def test_a_request_of_gemini_is_read_with_its_system_instruction(tmp_path: Path) -> None:
    instruction = {"parts": [{"text": "Be brief."}]}
    request = {"systemInstruction": instruction, "contents": [{"role": "user", "parts": [{"text": "go"}]}]}
    async with stash_at(tmp_path / "s.db") as stash:
        messages = await imported(stash, tmp_path / "request.json", request)
    assert messages == [{"role": "system", **instruction}, *request["contents"]]
