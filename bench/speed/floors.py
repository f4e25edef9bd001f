"""What the same work takes at least: a plain insert of the message, counting the window's tokens, a bare server."""

from __future__ import annotations

import json
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

from contextstash.tokenizer import count_with

from .conversation import further, messages

INSERTS = 200

START_UP = Path(__file__).parents[1] / "start_up.py"
STARTS, CALLS = 11, 300
"""Starts of each server, and calls to each."""

COUNTED_MESSAGES = 600
"""About the messages of a window of 200,000 tokens."""

MILLISECONDS = 1_000


def floors(folder: Path) -> dict[str, float]:
    """Milliseconds of each floor."""
    return {
        "floor: plain insert and commit": _plain_insert(folder / "plain.db"),
        "floor: counting one window with tiktoken": _counting(),
    }


def bare_server() -> dict[str, float]:
    """The start and a call of our server in milliseconds, and each relative to a bare server on the same SDK."""
    command = [sys.executable, str(START_UP), "--json", "--runs", str(STARTS), "--calls", str(CALLS)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(run.stdout)
    return {
        "start to tools/list": found["start"]["ours"] * MILLISECONDS,
        "… / bare server": found["start"]["ours"] / found["start"]["bare"],
        "one call over stdio": found["call"]["ours"] * MILLISECONDS,
        "… / bare server's echo": found["call"]["ours"] / found["call"]["bare"],
    }


def _plain_insert(path: Path) -> float:
    """A durable insert of a message's JSON into a table without an index."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    taken = []
    for number in range(INSERTS):
        begun = time.perf_counter()
        db.execute("INSERT INTO messages (body) VALUES (?)", (json.dumps(further(number)[number % 2]),))
        taken.append(time.perf_counter() - begun)
    db.close()
    return statistics.median(taken) * MILLISECONDS


def _counting() -> float:
    count = count_with("o200k_base")
    texts = [json.dumps(message) for message in messages(COUNTED_MESSAGES)]
    count(texts[0])
    begun = time.perf_counter()
    for text in texts:
        count(text)
    return (time.perf_counter() - begun) * MILLISECONDS
