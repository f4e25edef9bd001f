"""What a view says of files that changed: nothing that is wrong now, or that later becomes wrong."""

from __future__ import annotations

import pytest

from contextstash.stash import Stash
from tests.support.sized_sessions import called
from tests.support.stashes import SESSION, view

CODE = "\n".join(f"def handle_{line}(order): return order.total_{line}" for line in range(80))


EDITS: list[tuple[str, dict[str, str]]] = [
    ("Edit", {"file_path": "/srv/a.py", "old_string": "handle_1(", "new_string": "take_1("}),
    ("bash", {"command": "sed -i s/handle_1/take_1/ /srv/a.py"}),
]


@pytest.mark.parametrize(("tool", "arguments"), EDITS)
async def test_a_placeholder_says_that_its_file_was_changed_since(
    stash: Stash, tool: str, arguments: dict[str, str]
) -> None:
    natives = [{"role": "user", "content": "Fix a.py."}, *called(0, "Read", {"file_path": "/srv/a.py"}, CODE)]
    natives += [*called(1, "Read", {"file_path": "/srv/b.py"}, CODE.replace("handle", "serve"))]
    natives += [*called(2, tool, arguments, "ok"), *called(3, "bash", {"command": "pytest"}, "3 passed")]
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
async def test_a_change_of_another_file_in_the_same_folder_is_no_change_of_the_file(stash: Stash, later: str) -> None:
    natives = [{"role": "user", "content": "Fix it."}, *called(0, "bash", {"command": "cd /srv && cat a.py"}, CODE)]
    natives += [*called(1, "bash", {"command": later}, "ok"), *called(2, "bash", {"command": "pytest"}, "3 passed")]
    await stash.record_messages(natives, session_id=SESSION)
    await stash.prune_tool_outputs(SESSION, keep_last=0, minimum_tokens=0)
    shown = [str(message["content"]) for message in await view(stash)]
    assert any("archived output" in text for text in shown)
    assert not any("changed since" in text for text in shown)
