"""The command line speaks of commands and options, never of tools and arguments."""

from __future__ import annotations

import inspect

import pytest

from contextstash.cli.command_words import COMMANDS, OPTIONS, in_commands
from contextstash.stash import Stash
from tests.support.orchard import Orchard


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Pass a smaller keep_last to prune more.", "Pass a smaller --keep-last to prune more."),
        ("Pass minimum_tokens=0 to prune.", "Pass --minimum-tokens 0 to prune."),
        (
            "Call prune_tool_outputs; later call compact_session.",
            "Run contextstash prune; later run contextstash compact.",
        ),
        ("search_history finds handles.", "contextstash search finds handles."),
        ("my_keep_last and keep_lasting stay.", "my_keep_last and keep_lasting stay."),
    ],
)
def test_tools_and_arguments_become_commands_and_options(message: str, shown: str) -> None:
    assert in_commands(message) == shown


def test_a_prune_that_finds_nothing_names_its_own_option(orchard: Orchard) -> None:
    shown = orchard.run("prune", orchard.session, "--keep-last", "1000").stdout
    assert "--keep-last" in shown
    assert not [name for name in (*COMMANDS, *OPTIONS) if name in shown]


def test_the_named_methods_and_arguments_exist() -> None:
    assert not [name for name in COMMANDS if not hasattr(Stash, name)]
    known = {name for command in COMMANDS for name in inspect.signature(getattr(Stash, command)).parameters}
    assert set(OPTIONS) <= known
