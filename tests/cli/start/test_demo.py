"""`contextstash demo`: its steps, and its picture in the README."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.support.command_line import ANSI, CommandLine

ROOT = Path(__file__).parents[3]
STEPS = ("Record", "Prune", "Compact", "Retrieve", "Restore")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    done = CommandLine(tmp_path_factory.mktemp("home")).run("demo")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert ANSI not in done.stdout
    assert tuple(re.findall(r"^\d\. (\w+)", done.stdout, flags=re.MULTILINE)) == STEPS
    return done.stdout


def section(output: str, step: str) -> str:
    """The output of one step."""
    return re.split(r"^\d\. ", output, flags=re.MULTILINE)[1 + STEPS.index(step)]


def changes(text: str) -> list[tuple[int, int]]:
    """Every 'before → after tokens'."""
    found = re.findall(r"([\d,]+) → ([\d,]+) tokens", text)
    return [(int(before.replace(",", "")), int(after.replace(",", ""))) for before, after in found]


def test_pruning_and_compacting_shrink_the_view_and_restoring_undoes_both(output: str) -> None:
    [(full, pruned)] = changes(section(output, "Prune"))
    [(before_compaction, compacted)] = changes(section(output, "Compact"))
    [(before_restore, restored)] = changes(section(output, "Restore"))
    assert full > pruned == before_compaction > compacted == before_restore
    assert restored == full


def test_a_placeholder_names_the_handle_by_which_the_output_is_retrieved(output: str) -> None:
    handle = re.search(r"out_\w+", section(output, "Retrieve"))
    assert handle
    quoted = "\n".join(line for line in section(output, "Prune").splitlines() if line.startswith("  │ "))
    assert handle.group() in quoted


def test_nothing_is_lost(output: str) -> None:
    assert section(output, "Retrieve").count("identical") == 1
    assert section(output, "Restore").count("identical") == 2
    assert "DIFFERENT" not in output
    assert "schema" in section(output, "Compact"), "the requirement of the user"


def test_the_picture_in_the_readme_shows_the_output_of_the_demonstration(output: str) -> None:
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    texts = [
        html.unescape(text).replace("\xa0", " ").strip() for text in re.findall(r"<text[^>]*>(.*?)</text>", picture)
    ]
    shown = [text for text in texts if text and text != "contextstash demo"]  # the title of the window
    assert len(shown) > 30
    assert [text for text in shown if text not in output] == []
    assert "docs/images/demo.svg" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900
