"""Kills processes by SIGKILL while they record, prune, compact, export, import, delete and retain, and checks the
database each time.

Run as `python bench/kills.py [KILLS [SEED]]`: by default 300 kills, about 10 minutes. After each kill the database
is opened again: acknowledged writes must be complete, unacknowledged ones complete or absent, every view valid, the
file and its search index intact, and no deletion or import half done. Every 25 kills a new database is created. It
stops with an AssertionError at the first violation.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.killed_workers import Ledger, kill_once

KILLS = 300
KILLS_PER_DATABASE = 25


def main(kills: int, seed: int) -> None:
    moments: Counter[str] = Counter()
    forking = multiprocessing.get_context(
        "fork"
    )  # starts in milliseconds; safe, because this process has no other threads
    for begun in range(0, kills, KILLS_PER_DATABASE):
        ledger = Ledger()
        with tempfile.TemporaryDirectory() as folder:
            for number in range(begun, min(begun + KILLS_PER_DATABASE, kills)):
                kill_once(Path(folder), ledger, seed + number, forking)
        moments.update(ledger.kills)
        print(f"{moments.total()} kills, while: {dict(moments.most_common())}; all checks passed", flush=True)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [KILLS, 1][len(given) :]))
