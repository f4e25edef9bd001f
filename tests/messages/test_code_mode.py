"""Codex's code mode: a script that calls one tool is read as a call of that tool."""

from __future__ import annotations

import pytest

from contextstash.events.calls import calls_of
from contextstash.messages.openai_responses import OpenAIResponsesFormat, scripted_call
from contextstash.outputs.own_tools import is_own_call
from tests.support.turns import Script

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-price\n+`price`\n*** End Patch"


READS = 'const r = await tools.exec_command({cmd: "cat a.py", workdir: "/src", tty: true, prefix_rule: ["cat"]});'
ESCAPED = "const cmd = 'echo \\'a\\'\\n\\x41\\u{e9}';\ntext(await tools.exec_command({cmd, \"workdir\": '/src',}))"
PATCHES = "text(await tools.apply_patch(`" + PATCH.replace("`", "\\`") + "`));"
RAW = "const patch = String.raw`a\\n`;\nawait tools.apply_patch(patch)"
WRITES = 'tools.write_stdin({session_id: 16678, chars: ""})'
NAMES = "// not tools.apply_patch('x')\ntext(await tools.exec_command({cmd: 'echo tools.apply_patch(1)'}))"


@pytest.mark.parametrize(
    ("script", "call"),
    [
        (f"{READS}\ntext(r.output);", ("exec_command", {"cmd": "cat a.py", "workdir": "/src"})),
        (ESCAPED, ("exec_command", {"cmd": "echo 'a'\nAé", "workdir": "/src"})),
        (PATCHES, ("apply_patch", PATCH)),
        (RAW, ("apply_patch", "a\\n")),
        (WRITES, ("write_stdin", {"session_id": "16678", "chars": ""})),
        (NAMES, ("exec_command", {"cmd": "echo tools.apply_patch(1)"})),
        # What the tool was given is not known, or several were called.
        ("for (const f of files) text(await tools.exec_command({cmd: 'cat ' + f}))", None),
        ("for (const f of files) text(await tools.exec_command({cmd: `cat ${f}`}))", None),
        ("await Promise.all([tools.exec_command({cmd: 'ls'}), tools.exec_command({cmd: 'pwd'})])", None),
        ("let cmd = 'a'; cmd = 'b'; text(await tools.exec_command({cmd}))", None),
        ("/* tools.exec_command({cmd: 'ls'}) */ text(1)", None),
        ("tools.get_goal({})", None),
        ("text('tools')", None),
    ],
)
def test_the_one_call_of_a_script_is_read(script: str, call: tuple[str, object] | None) -> None:
    assert scripted_call(script) == call


def exec_item(script: str) -> dict[str, object]:
    return {"type": "custom_tool_call", "call_id": "c1", "name": "exec", "input": script}


def test_a_search_by_a_script_is_ours() -> None:
    read = OpenAIResponsesFormat().read(exec_item('text(await tools.mcp__contextstash__search_history({query: "f"}))'))
    [block] = read.blocks
    assert is_own_call(block.tool, block.argument)
    assert block.argument == "f"


def test_a_wait_for_a_script_belongs_to_what_it_ran() -> None:
    script = Script().call(
        "exec_command", {"cmd": "make test"}, "Script running with cell ID 14\nWall time 10 seconds\n"
    )
    script.call("wait", {"cell_id": "14"}, "Script completed\nWall time 9.1 seconds\nOutput:\n\n12 passed\n")
    assert [call.command for call in calls_of(script.turns)] == ["make test", "make test"]
