"""What a view says of files that changed: nothing that is wrong now, or that later becomes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.stashes import SESSION, stash_at, view

CODE = "\n".join(f"def handle_{line}(order): return order.total_{line}" for line in range(80))


def call(number: int, tool: str, arguments: dict[str, str], output: str) -> list[dict[str, Any]]:
    """A call of a tool, and its output."""
    made = {"type": "function", "id": f"c{number}", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]


EDITS: list[tuple[str, dict[str, str]]] = [
    ("Edit", {"file_path": "/srv/a.py", "old_string": "handle_1(", "new_string": "take_1("}),
    ("bash", {"command": "sed -i s/handle_1/take_1/ /srv/a.py"}),
]


@pytest.mark.parametrize(("tool", "arguments"), EDITS)
async def test_a_placeholder_says_that_its_file_was_changed_since(
    tmp_path: Path, tool: str, arguments: dict[str, str]
) -> None:
    natives = [{"role": "user", "content": "Fix a.py."}, *call(0, "Read", {"file_path": "/srv/a.py"}, CODE)]
    natives += [*call(1, "Read", {"file_path": "/srv/b.py"}, CODE.replace("handle", "serve"))]
    natives += [*call(2, tool, arguments, "ok"), *call(3, "bash", {"command": "pytest"}, "3 passed")]
    async with stash_at(tmp_path / "s.db", window=100_000) as stash:
        await stash.record_messages(natives, session_id=SESSION)
        await stash.prune_tool_outputs(SESSION, keep_last=0, minimum_tokens=0)
        shown = [str(message["content"]) for message in await view(stash)]
    [first, second] = [text for text in shown if "archived output of Read" in text]
    assert "The file was changed since, at message 6. As it was at message 2: get_archived_output" in first
    assert "changed since" not in second
    assert not any("Unchanged" in text or "don't repeat" in text for text in shown)


@pytest.mark.parametrize(
    "later",
    [
        "cd /srv && cat > out.py <<'EOF'\nimport orders\nqs.only('id')\nEOF",
        "cd /srv && sed -i s/one/two/ other.py",
        "cd /srv && python a.py > /tmp/log.txt",
    ],
)
async def test_a_change_of_another_file_in_the_same_folder_is_no_change_of_the_file(tmp_path: Path, later: str) -> None:
    natives = [{"role": "user", "content": "Fix it."}, *call(0, "bash", {"command": "cd /srv && cat a.py"}, CODE)]
    natives += [*call(1, "bash", {"command": later}, "ok"), *call(2, "bash", {"command": "pytest"}, "3 passed")]
    async with stash_at(tmp_path / "s.db", window=100_000) as stash:
        await stash.record_messages(natives, session_id=SESSION)
        await stash.prune_tool_outputs(SESSION, keep_last=0, minimum_tokens=0)
        shown = [str(message["content"]) for message in await view(stash)]
    assert any("archived output" in text for text in shown)
    assert not any("changed since" in text for text in shown)
