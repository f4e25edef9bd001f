"""A process that keeps a database open, with or without a read transaction, until it is told to go on.

Run as `python locked_databases.py DATABASE idle|reading`: prints a line once it is open; ends when its input ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from sqlcipher3 import dbapi2 as sqlite3

Holding = Literal["idle", "reading"]


@contextmanager
def held(path: Path, how: Holding) -> Iterator[subprocess.Popen[str]]:
    """Another process that keeps this database open."""
    with subprocess.Popen(
        [sys.executable, __file__, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            assert process.stdout.readline() == "open\n"
            yield process
        finally:
            process.stdin.close()


def main(path: str, how: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("SELECT count(*) FROM segments").fetchone()
        if how == "reading":
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM segments").fetchone()
        print("open", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
