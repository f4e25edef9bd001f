"""A client of your own: `contextstash import` reads its transcripts, and `serve --follow notebook` follows them.

Put this module into a package and name it in the package's pyproject.toml:

    [project.entry-points."contextstash.clients"]
    notebook = "own_client:NOTEBOOK"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from contextstash.clients.client import Client, Files
from contextstash.clients.current import newest_first, recent
from contextstash.clients.fields import moment
from contextstash.clients.transcripts import Line, Reader, State
from contextstash.record.transcript_records import TranscriptMessage


def said(lines: Iterable[Line], state: State, source: str) -> Iterator[TranscriptMessage]:
    """What is said in lines such as {"notebook": "n1", "id": "7", "who": "user", "text": "Hello.", "at": "2026-11-23"}.

    Only new lines come; what has to be remembered until the next ones belongs into `state`, as the session's id does.
    """
    for record in (line.record for line in lines):
        state["session"] = record["notebook"]
        body = {"role": record["who"], "content": record["text"]}
        yield TranscriptMessage(body, key=record["id"], created_at=moment(record.get("at")))


def newest(folder: Path, project: Path, call: Mapping[str, Any]) -> list[list[Path]]:
    """The transcript that was written last, and any that another window may be writing: `call` tells nothing."""
    return [[each] for each in recent(newest_first(folder.glob("*.notes"), folder))]


READER = Reader("notebook", "openai-chat", lambda _, records: any("notebook" in each for each in records), said)

NOTEBOOK = Client(
    "notebook", ("notebook",), files=Files(lambda: Path.home() / ".notebook", newest), reader=lambda: READER
)
