"""The documentation is true: generated pages are those of the code, links lead somewhere, commands exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from contextstash.cli.app import cli
from contextstash.mcp.server import SCHEMAS
from contextstash.window.settings import PRESETS, UserSettings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_those_of_the_code() -> None:
    for name, text in generator().pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{name} is old: run `make docs`"
    assert SCHEMAS.read_text(encoding="utf-8") == generator().schemas_file(), "run `make docs`"


def test_every_setting_and_preset_is_documented() -> None:
    text = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert re.findall(r"^## `(\w+)`", text, flags=re.MULTILINE) == list(UserSettings.model_fields)
    assert all(f"`{preset}`" in text for preset in PRESETS if preset != "default")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_a_target(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


def commands(page: Path) -> Iterator[list[str]]:
    """The command lines of ours that a page shows, each as words."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"`((?:contextstash) [^`]+)`", text)
    for line in lines:
        found = re.search(r"(?:^|[/| ])contextstash ([a-z][a-z-]*(?: .*)?)$", line.split("#")[0].split("   ")[0])
        if found and "|" not in found[1].split()[0]:
            yield shlex.split(found[1].replace("'", ""))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page):
        command = cli.commands.get(words[0])
        assert command, f"contextstash {words[0]}"
        if isinstance(command, click.Group):
            continue
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word for word in words[1:] if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert given - known - {"--help"} == set(), " ".join(words)
