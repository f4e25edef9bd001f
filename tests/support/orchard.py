"""A recorded session with tool outputs, and the command line that works on it."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import CommandLine, write_transcript

WINDOW = ("--set", "window=32000")


class Orchard:
    """A recorded session, its command line, and the texts of its outputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = CommandLine(folder).run
        self.json = CommandLine(folder).json
        self.texts = write_transcript(folder / "session.jsonl")
        [report] = self.json("import", folder / "session.jsonl")
        self.session: str = report["session_id"]
