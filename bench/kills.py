"""Processes killed by SIGKILL while they record, prune, compact, import and delete; after each, all is checked.

Run as `python bench/kills.py [KILLS [SEED]]`: 300 kills, some 10 minutes, if not given. After each kill the database is
opened again: what was acknowledged is there to the letter, what was begun is there whole or not at all, every view is
valid, the file and its search index are sound, and nothing is left of half a deletion or import. Every 25 kills a new
database is begun. It ends with an AssertionError at the first thing that does not hold.
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
EACH_DATABASE = 25


def main(kills: int, seed: int) -> None:
    moments: Counter[str] = Counter()
    forking = multiprocessing.get_context("fork")  # starts in some ms; nothing else runs in this process
    for begun in range(0, kills, EACH_DATABASE):
        ledger = Ledger()
        with tempfile.TemporaryDirectory() as folder:
            for number in range(begun, min(begun + EACH_DATABASE, kills)):
                kill_once(Path(folder), ledger, seed + number, forking)
        moments.update(ledger.kills)
        print(f"{moments.total()} kills, while: {dict(moments.most_common())}; all held", flush=True)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + [KILLS, 1][len(given) :]))
