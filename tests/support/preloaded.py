"""What the process from which commands are forked has imported and loaded (tests/support/command_line.py)."""

from __future__ import annotations

from importlib import import_module

from contextstash.cli.app import cli
from contextstash.tokenizer import count_with

for name in (
    "pytest",  # the main module of the tests, which each process looks up
    "contextstash.clients.follow",
    "contextstash.clients.hooks",
    "contextstash.stash",
    "contextstash_storage.sqlite",
    "tests.support.command_line",
):
    import_module(name)

list(cli.commands.values())  # each is imported when it is looked up
count_with("o200k_base")("load the vocabulary")
