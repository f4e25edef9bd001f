"""Runs the command line on a terminal, and returns the bytes that the terminal gets."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests.support.warm_processes import run_command


def printed_on_terminal(database: Path, *arguments: str, columns: int = 200) -> bytes:
    """What a command prints on a terminal of so many columns, standard error included. The command must succeed."""
    import pty

    terminal, end = pty.openpty()
    found: list[bytes] = []
    reader = threading.Thread(target=_read, args=(terminal, found))
    reader.start()
    home = {"HOME": str(database.parent), "XDG_CONFIG_HOME": str(database.parent), "COLUMNS": str(columns)}
    environment = {**os.environ, **home, "CONTEXTSTASH_DB": str(database), "PYTHONUTF8": "1"}
    try:
        done = run_command(
            arguments, folder=database.parent, environment=environment, terminal=Path(os.ttyname(end)), seconds=60
        )
        assert done.returncode == 0
    finally:
        os.close(end)
        reader.join()
        os.close(terminal)
    return b"".join(found)


def _read(terminal: int, found: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        found.append(data)
