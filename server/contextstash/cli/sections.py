"""The list of commands in `contextstash --help`: by what they are for, each in a line that fits 80 columns."""

from __future__ import annotations

from collections.abc import Mapping

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
        "upgrade": "Say how to upgrade this installation.",
    },
    "Look": {
        "sessions": "List the sessions, newest first.",
        "status": "Show how full a session's context is, and with what.",
        "search": "Search everything that was recorded.",
        "show": "Print an output, a summary, or messages.",
        "events": "List what happened to a session's context.",
        "calls": "List the model calls of a session, with their cost.",
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
        "validate": "Check a message list against its provider's rules.",
    },
    "For clients and scripts": {
        "serve": "Serve the tools over MCP; clients start this.",
        "token": "Make, list and revoke tokens for a server over HTTP.",
        "gateway": "Serve other MCP servers' tools, with limited outputs.",
        "proxy": "Stand between a client and the model API.",
        "hook": "Handle an event of a client's hooks.",
        "statusline": "Print Claude Code's status line.",
        "clip": "Print the text of a pipe within limits, archive all of it.",
        "completion": "Print the completion script of a shell.",
    },
}

OTHERS = "Other"


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        left = dict(self.commands)
        for section, lines in SECTIONS.items():
            rows = [(name, line) for name, line in lines.items() if left.pop(name, None) is not None]
            with formatter.section(section):
                formatter.write_dl(rows)
        rows = [(name, command.get_short_help_str()) for name, command in left.items() if not command.hidden]
        if rows:
            with formatter.section(OTHERS):
                formatter.write_dl(rows)
