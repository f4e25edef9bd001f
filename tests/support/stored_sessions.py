"""Short ways to fill a session store: messages, their counting, sessions, edits; and a process that keeps one open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from contextstash_storage.records import (
    Appended,
    ArchiveEdit,
    Block,
    Counters,
    NewMessage,
    Output,
    Part,
    Session,
    SummaryEdit,
)
from contextstash_storage.sqlite import SqliteDatabase
from contextstash_storage.store import SessionStore


class SqliteStore(SessionStore):
    """A store that is known to be in a file."""

    database: SqliteDatabase


OWNER = "local"
SESSION = "one"


async def new_session(store: SessionStore, session_id: str = SESSION, **fields: Any) -> Session:
    now = datetime.now(UTC)
    usual = {"format": "openai-chat", "created_at": now, "updated_at": now}
    return await store.create_session(Session(session_id=session_id, **{**usual, **fields}))


def count(counters: Counters, message: NewMessage, seq: int) -> Counters:
    """Every message counts for the user's part with the tokens of its blocks."""
    parts = {**counters.parts, Part.USER: counters.parts.get(Part.USER, 0) + message.tokens}
    return counters.model_copy(
        update={"messages": seq + 1, "view_messages": counters.view_messages + 1, "parts": parts}
    )


async def record(store: SessionStore, *messages: NewMessage, session_id: str = SESSION, **rest: Any) -> Appended:
    return await store.append_messages(session_id, messages, count=count, **rest)


async def bodies(store: SessionStore, session_id: str = SESSION) -> list[Any]:
    return [message.body for message in await store.read_messages(session_id)]


def says(text: str, role: Any = "user", **fields: Any) -> NewMessage:
    """A message of plain text."""
    block = Block(type="text", tokens=len(text) // 4, size=len(text))
    body = {"role": role, "content": text}
    return NewMessage(**{"body": body, "role": role, "blocks": (block,), "texts": ((0, text),), **fields})


def calls(call_id: str, command: str = "ls", tool: str = "Bash") -> NewMessage:
    """A message that calls a tool."""
    block = Block(type="tool_call", call_id=call_id, tool=tool, argument=command)
    body = {"role": "assistant", "tool_calls": [{"id": call_id, "command": command}]}
    return NewMessage(body=body, role="assistant", blocks=(block,), texts=((0, command),))


def answers(
    call_id: str, text: str = "a.txt", handle: str = "out_a", tool: str = "Bash", argument: str = ""
) -> NewMessage:
    """A message with a tool's result."""
    block = Block(type="tool_result", call_id=call_id, tool=tool, size=len(text))
    what = {"handle": handle, "tool": tool, "argument": argument, "sha256": "0" * 64}
    output = Output(**what, seq=0, block=0, tokens=1, characters=len(text), lines=1)  # type: ignore[arg-type]
    body = {"role": "tool", "tool_call_id": call_id, "content": text}
    return NewMessage(
        body=body, role="tool", kind="tool_result", blocks=(block,), outputs=(output,), texts=((0, text),)
    )


def conversation(turns: int) -> Sequence[NewMessage]:
    """Turns of a question and a reply, all different."""
    return [
        message for turn in range(turns) for message in (says(f"ask {turn}"), says(f"reply {turn}", role="assistant"))
    ]


def archiving(seq: int, **fields: Any) -> ArchiveEdit:
    """Archives the first block of a message."""
    usual: dict[str, Any] = {"block": 0, "handle": "out_a", "text": "gone", "tokens": 5}
    return ArchiveEdit(seq=seq, **{**usual, **fields})


def summarizing(first: int, last: int, **fields: Any) -> SummaryEdit:
    """Shows messages `first..last` as a summary."""
    usual: dict[str, Any] = {
        "summary_id": f"sum_{first}_{last}",
        "strategy": "extractive",
        "text": "…",
        "summary": "…",
        "tokens": 0,
    }
    return SummaryEdit(first_seq=first, last_seq=last, **{**usual, **fields})


HOLDER = """
import sys; from sqlcipher3 import dbapi2 as sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
if sys.argv[2] == "reading":
    db.execute("BEGIN")
db.execute("SELECT count(*) FROM segments").fetchone()
print("open", flush=True); sys.stdin.read()
"""


@contextmanager
def held(path: Path, how: Literal["idle", "reading"]) -> Iterator[subprocess.Popen[str]]:
    """Another process that keeps this database open, with or without a read transaction."""
    command = [sys.executable, "-c", HOLDER, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            assert process.stdout.readline() == "open\n"
            yield process
        finally:
            process.stdin.close()
