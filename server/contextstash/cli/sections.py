"""The commands: by what they are for, each in a line that fits 80 columns, and imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import chain

import click

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "demo": "See what filled the windows of your own sessions.",
        "install": "Add contextstash to a client's configuration.",
        "import": "Record the sessions that clients have written to disk.",
        "run": "Start a client behind a proxy that shortens its requests.",
        "continue": "Go on with a session in another client.",
        "doctor": "Check database, settings, clients and hooks.",
        "uninstall": "Remove contextstash from a client's configuration.",
    },
    "Look": {
        "sessions": "List the sessions, newest first.",
        "status": "Show how full a session's context is, and with what.",
        "search": "Search everything that was recorded.",
        "show": "Print an output, a summary, or messages.",
        "advise": "Compare what your sessions would have cost in smaller windows.",
        "receipt": "Say what was billed, and what contextstash saved or cost.",
        "ui": "Show sessions in a browser.",
    },
    "Change": {
        "prune": "Archive a session's old tool outputs.",
        "compact": "Show a session's older messages as a summary.",
        "restore": "Undo a prune or a compaction.",
        "pin": "Keep outputs in the view, whatever their age.",
        "delete": "Delete a session for good.",
        "retain": "Delete sessions older or larger than you want to keep.",
        "encrypt": "Encrypt the database file.",
        "decrypt": "Make the database file readable without a key again.",
        "config": "Show and change settings.",
    },
    "Share and check": {
        "export": "Write a session to a file: whole, messages, Markdown or HTML.",
        "migrate-store": "Copy all sessions into another database.",
    },
    "For clients and scripts": {
        "serve": "Serve the tools over MCP; clients start this.",
        "token": "Make, list and revoke tokens for a server over HTTP.",
        "gateway": "Serve other MCP servers' tools, with limited outputs.",
        "proxy": "Stand between a client and the model API.",
        "hook": "Handle an event of a client's hooks.",
        "statusline": "Print Claude Code's status line.",
        "window": "Answer a compaction of a client, for its plugin.",
        "completion": "Print the completion script of a shell.",
    },
}

FOLDERS = {
    "Start": "start",
    "Look": "look",
    "Change": "change",
    "Share and check": "share",
    "For clients and scripts": "scripts",
}
"""The folder of each section's commands; each command has a file of its name."""

FILES = {
    "import": "start.import_",
    "continue": "start.continue_",
    "decrypt": "change.encrypt",
    "completion": "completion",
}
"""The files that have another name: Python has a keyword of it, or they have another command too."""


class Commands(Mapping[str, click.Command]):
    """The commands of SECTIONS; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        folder = next((FOLDERS[section] for section, lines in SECTIONS.items() if name in lines), None)
        if folder is None:
            raise KeyError(name)
        file = FILES.get(name) or f"{folder}.{name.replace('-', '_')}"
        found = vars(import_module(f"contextstash.cli.{file}")).values()
        return next(each for each in found if isinstance(each, click.Command) and each.name == name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(SECTIONS.values())

    def __len__(self) -> int:
        return sum(map(len, SECTIONS.values()))


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section, without importing them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, lines in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(lines.items()))
