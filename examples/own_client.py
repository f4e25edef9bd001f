"""A client of your own: `contextstash import` reads its transcripts, and `serve --follow notebook` follows them.

Put this module into a package and name it in the package's pyproject.toml:

    [project.entry-points."contextstash.clients"]
    notebook = "own_client:NOTEBOOK"
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from contextstash.clients.client import Client, Files
from contextstash.clients.transcripts import Batch, Head, Line, Reader, State, moment, newest_first
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession


class NotebookReader(Reader):
    """Reads lines such as {"notebook": "n1", "id": "7", "who": "user", "text": "Hello.", "at": "2026-11-23T10:00:00Z"}.

    Only new lines come; what has to be remembered until the next ones belongs into `state`.
    """

    name = "notebook"

    def claims(self, head: Head) -> bool:
        return any("notebook" in record for record in head.records)

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        said = []
        for line in lines:
            record = line.record
            state.setdefault("session", record["notebook"])
            body = {"role": record["who"], "content": record["text"]}
            said.append(TranscriptMessage(body, key=record["id"], created_at=moment(record.get("at"))))
        session = TranscriptSession(state.get("session", "?"), "openai-chat", agent=self.name, source=source)
        return [Batch(session, said)] if said else []


def newest(folder: Path, project: Path | None) -> list[Path]:
    """The transcript that was written last."""
    return newest_first(folder.glob("*.notes"), folder)[:1]


NOTEBOOK = Client(
    "notebook", ("notebook",), files=Files(lambda home: home / ".notebook", newest), reader=NotebookReader
)
