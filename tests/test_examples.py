"""The programs in `examples/`, run as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, environment_of
from tests.support.provider import Asked, Said, provider

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[1] / "examples"
COMMAND = "echo forty-two files"


def run(name: str, folder: Path, **environment: str) -> str:
    """What a program prints; it must end well."""
    variables = environment_of(folder, CONTEXTSTASH_DB=str(folder / "sessions.db"), **environment)
    command = [sys.executable, str(EXAMPLES / name), "How many files are there?"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_no_example_that_is_not_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "own_client.py",  # tests/clients/test_own_client.py
        "pydantic_ai_capability.py",  # tests/adapters
        "google_adk_callbacks.py",
        "record_and_retrieve.py",
        "agent_loop_anthropic.py",
        "agent_loop_openai.py",
        "agent_loop_over_mcp.py",
    }


def test_an_output_is_recorded_archived_and_read_again(tmp_path: Path) -> None:
    printed = run("record_and_retrieve.py", tmp_path)
    assert "left the window" in printed
    assert "archived output of read_log" in printed
    assert "ERROR no such table: loans" in printed.splitlines()[-1]


@pytest.mark.parametrize(("name", "sent"), [("anthropic", [1, 3]), ("openai", [2, 4]), ("over_mcp", [1, 3])])
def test_a_loop_calls_its_tool_answers_and_is_recorded(tmp_path: Path, name: str, sent: list[int]) -> None:
    sizes: list[int] = []

    def say(asked: Asked) -> Said:
        """A call of the shell once, then what it printed."""
        sizes.append(len(asked.items))
        found = asked.outputs[-1:]
        call = None if found else ("shell", {"command": COMMAND})
        return Said(f"I found: {found[0]}" if found else "", call, None, len(sizes), 300, 20)

    with provider(say) as url:
        environment = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "test",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "test",
        }
        printed = run(f"agent_loop_{name}.py", tmp_path, **environment)
    assert "I found: forty-two files" in printed
    assert sizes == sent
    line = CommandLine(tmp_path)
    shown = line.run("show", "loop-").stdout
    assert "4 messages." in shown
    assert COMMAND in shown
    assert "600 prompt tokens billed" in line.run("receipt").stdout
