"""A batch of messages stored in pieces, each a transaction of its own, so that no other process waits for all of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace

from contextstash_storage.errors import (
    BadInputError,
    EditConflictError,
    SessionNotFoundError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from contextstash_storage.preparation.compact_form import COMPACT_FORM
from contextstash_storage.preparation.messages import is_large, prepare
from contextstash_storage.records import Appended, NewMessage
from contextstash_storage.sqlite.append_messages import Batch, Progress, append_piece
from contextstash_storage.sqlite.connection import Connection
from contextstash_storage.sqlite.group_commit import GroupCommit

PAUSE_SECONDS = 0.005
"""Pause between two pieces. SQLite has no queue for its lock: a waiting process would find the database locked each
time if the next piece started at once. Longer than connection.LOOK_SECONDS, so that each that waits looks once in it.
Of 20 ms and 5 ms: two processes that record transcripts take a fifth less time with 5."""


async def append_in_pieces(group: GroupCommit, batch: Batch, messages: Sequence[NewMessage]) -> Appended:
    """Append messages, as SessionStore.append_messages says. `batch` is all about them but themselves; the lock is held
    for one piece at a time. A small batch is committed together with others."""
    writer, lock = group.writer, group.lock
    if is_large(messages):
        batch = replace(batch, messages=await asyncio.to_thread(prepare, messages, COMPACT_FORM))
        progress = await _locked(writer, lock, batch, Progress())
    else:
        batch, progress = await _prepared_and_begun(group, batch, messages)
    while progress.appended is None:
        try:
            await asyncio.sleep(PAUSE_SECONDS)
            progress = await _locked(writer, lock, batch, progress)
        except EditConflictError:
            raise
        except SessionNotFoundError as error:
            raise SessionNotFoundError(_deleted(batch, progress)) from error
        except (StoreError, BadInputError) as error:
            raise type(error)(_partly_stored(batch, progress, error)) from error
    return progress.appended


async def _locked(writer: Connection, lock: asyncio.Lock, batch: Batch, progress: Progress) -> Progress:
    async with lock:
        return await writer.write(lambda db: append_piece(db, batch, progress))


async def _prepared_and_begun(
    group: GroupCommit, batch: Batch, messages: Sequence[NewMessage]
) -> tuple[Batch, Progress]:
    """Prepare a small batch on the writer's thread, just before its transaction: a thread of its own would take longer
    than the work."""

    def prepared() -> Callable[[sqlite3.Connection], tuple[Batch, Progress]]:
        whole = replace(batch, messages=prepare(messages, COMPACT_FORM))
        return lambda db: (whole, append_piece(db, whole, Progress()))

    return await group.write(prepared)


def _partly_stored(batch: Batch, progress: Progress, error: Exception) -> str:
    """What an error says that ends a batch between two pieces."""
    assert progress.left is not None
    next_seq = progress.left.messages
    if batch.is_identified:
        advice = "Send the same batch again in the same way: what is stored is not stored twice."
    else:
        advice = f"Record the messages from number {progress.done} of the batch on with first_seq={next_seq}."
    stored = f"{progress.done} of {len(batch.messages)} messages were recorded"
    return f"{stored}, then {_cause(error)}. next_seq is {next_seq}. {advice}"


def _deleted(batch: Batch, progress: Progress) -> str:
    """What the error says if the session was deleted between two pieces."""
    return (
        f"{progress.done} of {len(batch.messages)} messages were recorded, then the session '{batch.session_id}' was"
        " deleted by another process, and these messages with it. The rest was not stored. To keep the conversation,"
        " record it again from its first message, preferably under a new session_id."
    )


def _cause(error: Exception) -> str:
    if isinstance(error, StoreBusyError):
        return "the database was locked by another process for too long"
    if isinstance(error, StoreFullError):
        return "the disk was full"
    return f"this happened: {str(error).rstrip('.')}"
