"""A process that records, prunes, compacts, exports, imports, deletes and retains at random until it is killed,
and what must hold then; and one that only records.

The worker writes to its journal what it is about to do, and that it was done once that is acknowledged. `Ledger` reads
the journal after the kill: what is acknowledged must be there, what was begun is there whole or not at all.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from multiprocessing.context import BaseContext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlcipher3 import dbapi2 as sqlite3

from contextstash.base.files import replace_file
from contextstash.stash import Stash
from contextstash_storage.records import Native, Session
from contextstash_storage.sqlite import open_sqlite
from tests.support.stashes import as_bytes, history, round_of, stash_at, valid_view
from tests.support.stored_sessions import new_session, record, says

FORMAT = "openai-chat"
WORK = "work"
OPERATIONS = ("record", "prune", "compact", "export", "import", "delete", "retain")
MAX_SECONDS = 0.6
"""A worker is killed after a random time of up to this."""

STARTED_SECONDS = 60.0
SETTLED_SECONDS = 60.0
"""How long a process may take to start, and what was left half done to be removed: very generous."""

PIN = '"rule: stays"'
"""What keeps WORK from being deleted by its age; its copies do not have it."""

MAX_COPIES = 3

EXPORTED = "work.jsonl"
"""The file that WORK is exported to."""


class Journal:
    """Lines that outlive the kill of who wrote them."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, operation: str, **fields: Any) -> None:
        os.write(self._file, json.dumps({"what": what, "operation": operation, **fields}).encode() + b"\n")


def work(path: str, journal_path: str, number: int) -> None:
    """Work until killed."""
    asyncio.run(_work(Path(path), Journal(Path(journal_path)), number))


async def _work(path: Path, journal: Journal, number: int) -> None:
    rng = random.Random(number)
    async with stash_at(path, window=200_000) as stash:
        now = datetime.now(UTC)
        await stash.store.create_session(Session(session_id=WORK, format=FORMAT, created_at=now, updated_at=now))
        await stash.configure_session(WORK, settings={"pin": [json.loads(PIN)]})
        journal.write("done", "open")
        place = 0
        while True:
            place += 1
            operation = rng.choice((*OPERATIONS, "record"))
            if operation == "export":
                journal.write("begun", operation)
                lines = [f"{json.dumps(record)}\n" async for record in stash.export_session(WORK)]
                replace_file(path.with_name(EXPORTED), "".join(lines).encode())
                journal.write("done", operation)
            else:
                await _do(stash, journal, operation, f"{number}-{place}", (number, place))


async def _do(stash: Stash, journal: Journal, operation: str, name: str, numbers: tuple[int, int]) -> None:
    copies = [line.session_id for line in (await stash.list_sessions()).sessions if line.session_id != WORK]
    if operation == "record":
        said = "worker {} batch {}".format(*numbers)
        output = f"output of {said}\n" + f"line of {said}\n" * 150
        batch = [
            {"role": "user", "content": f"question of {said}"},
            *round_of(100_000 * numbers[0] + numbers[1], output),
        ]
        journal.write("begun", operation, messages=batch)
        await stash.record_messages(batch, session_id=WORK, format=FORMAT)
        journal.write("done", operation)
    elif operation == "prune":
        journal.write("begun", operation)
        pruned = await stash.prune_tool_outputs(WORK, keep_last=1, protect_tokens=0, minimum_tokens=0)
        journal.write("done", operation, handles=[output.handle for output in pruned.archived])
    elif operation == "compact":
        journal.write("begun", operation)
        compacted = await stash.compact_session(WORK, summary=f"Summary {name}: all is well.", strategy="host")
        journal.write("done", operation, summary=compacted.summary_id)
    elif operation == "import" and len(copies) < MAX_COPIES:
        lines = [json.dumps(record).replace(PIN, "") async for record in stash.export_session(WORK)]
        journal.write("begun", operation, copy=f"copy-{name}", messages=await history(stash, WORK))
        await stash.import_session(lines, session_id=f"copy-{name}")
        journal.write("done", operation)
    elif operation == "delete" and copies:
        journal.write("begun", operation, copy=copies[-1])
        await stash.delete_session(copies[-1])
        journal.write("done", operation)
    elif operation == "retain" and len(copies) > 1:
        journal.write("begun", operation)
        await stash.retain(datetime.now(UTC) + timedelta(days=10), days=1, dry_run=False)
        journal.write("done", operation)


class Ledger:
    """What must be in the database by the journals of all workers so far."""

    def __init__(self) -> None:
        self.kills: dict[str, int] = {}
        self._recorded: list[Native] = []
        self._copies: dict[str, list[Native]] = {}
        self._summaries: list[str] = []
        self._handles: set[str] = set()
        self._begun: Mapping[str, Any] | None = None

    def read(self, journal: Path) -> None:
        """Take in what a worker wrote; what it had begun when it was killed stays open."""
        self._begun = None
        *lines, _ = journal.read_bytes().split(b"\n")  # what follows the last line end was cut off by the kill
        for line in lines:
            entry = json.loads(line)
            if entry["what"] == "begun":
                self._begun = entry
            elif self._begun is not None:
                self._settle({**self._begun, **entry})
                self._begun = None
        operation = self._begun["operation"] if self._begun else "between"
        self.kills[operation] = self.kills.get(operation, 0) + 1

    def _settle(self, done: Mapping[str, Any]) -> None:
        if done["operation"] == "record":
            self._recorded += done["messages"]
        elif done["operation"] == "prune":
            self._handles |= set(done["handles"])
        elif done["operation"] == "compact" and done["summary"]:
            self._summaries.append(done["summary"])
        elif done["operation"] == "import":
            self._copies[done["copy"]] = done["messages"]
        elif done["operation"] == "delete":
            del self._copies[done["copy"]]
        elif done["operation"] == "retain":
            self._copies.clear()

    async def check(self, path: Path) -> None:
        """Open the database again and compare it with the ledger; settle what was begun."""
        async with stash_at(path, window=200_000) as stash:
            if self._begun is not None:
                await self._settle_begun(stash, self._begun)
            names = {line.session_id for line in (await stash.list_sessions()).sessions}
            assert names - {WORK} == self._copies.keys()
            for name, messages in self._copies.items():
                assert as_bytes(await history(stash, name)) == as_bytes(messages)
                await valid_view(stash, FORMAT, name)
            if self._recorded:
                assert as_bytes(await history(stash, WORK)) == as_bytes(self._recorded)
                await valid_view(stash, FORMAT, WORK)
            for handle in self._handles:
                await stash.get_archived_output(handle, session_id=WORK, max_tokens=100)
            for summary in self._summaries:
                await stash.get_summary(WORK, level=summary)
            await self._check_exported(path.with_name(EXPORTED))
            await settled(path)
        check_files(path)

    async def _check_exported(self, file: Path) -> None:
        """The exported file is a whole session, as it was at some time."""
        if not file.exists():
            return
        with TemporaryDirectory() as folder:
            async with stash_at(Path(folder) / "there.db", window=200_000) as there:
                await there.import_session(file.read_text().splitlines())
                messages = await history(there, WORK)
        assert as_bytes(messages) == as_bytes(self._recorded[: len(messages)])

    async def _settle_begun(self, stash: Stash, begun: Mapping[str, Any]) -> None:
        """Whether what was begun has been done: whole, or not at all."""
        names = {line.session_id for line in (await stash.list_sessions()).sessions}
        if begun["operation"] == "record" and WORK in names:
            stored = await history(stash, WORK)
            if len(stored) != len(self._recorded):
                self._settle(begun)
        elif begun["operation"] in ("import", "delete"):
            here = begun["copy"] in names
            if here == (begun["operation"] == "import"):
                self._settle(begun)
        elif begun["operation"] == "retain":
            self._copies = {name: messages for name, messages in self._copies.items() if name in names}


async def settled(path: Path) -> None:
    """Wait until nothing of a deletion that was cut short is left; of an import it stays hidden for ten minutes."""
    give_up = time.monotonic() + SETTLED_SECONDS
    unfinished = "SELECT count(*) FROM sessions WHERE owner <> 'local' AND updated_at = 0"
    with closing(sqlite3.connect(path)) as db:
        while db.execute(unfinished).fetchone() != (0,):
            assert time.monotonic() < give_up
            await asyncio.sleep(0.01)


def check_files(path: Path) -> None:
    """The database is sound, and so is its search index; every stored row belongs to a session."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for table in ("segments", "keys", "outputs", "log", "entries"):
            rows = f"SELECT count(*) FROM {table} WHERE session NOT IN (SELECT session FROM sessions)"
            assert db.execute(rows).fetchone() == (0,)
        db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        indexed = "SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT entry FROM entries)"
        assert db.execute(indexed).fetchone() == (0,)


def kill_once(folder: Path, ledger: Ledger, number: int, context: BaseContext | None = None) -> None:
    """Start a worker, kill it at a random moment, and check what it leaves."""
    path, journal = folder / "stash.db", folder / f"{number}.jsonl"
    started: Any = context or multiprocessing.get_context("spawn")
    process = started.Process(target=work, args=(str(path), str(journal), number), daemon=True)
    process.start()
    give_up = time.monotonic() + STARTED_SECONDS
    while not (journal.exists() and journal.stat().st_size):
        assert process.is_alive()
        assert time.monotonic() < give_up
        time.sleep(0.002)
    time.sleep(random.Random(-number).uniform(0, MAX_SECONDS))
    assert process.is_alive()
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    ledger.read(journal)
    asyncio.run(ledger.check(path))


async def main(path: str, session_id: str, number: int) -> None:
    async with await open_sqlite(Path(path)) as store:
        await new_session(store, session_id)
        name = f"{session_id} {id(store)}"
        for place in range(number):
            appended = await record(store, says(f"{name} {place} " + "word " * 300), session_id=session_id)
            print(appended.messages[0].seq, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
