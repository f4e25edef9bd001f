"""Runs the command line on a terminal, and returns the bytes that the terminal gets."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path


def printed_on_terminal(database: Path, *arguments: str, columns: int = 200) -> bytes:
    """What a command prints on a terminal of so many columns, standard error included. The command must succeed."""
    import pty

    terminal, end = pty.openpty()
    found: list[bytes] = []
    reader = threading.Thread(target=_read, args=(terminal, found))
    reader.start()
    home = {"HOME": str(database.parent), "XDG_CONFIG_HOME": str(database.parent), "COLUMNS": str(columns)}
    environment = {**os.environ, **home, "CONTEXTSTASH_DB": str(database), "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "contextstash", *arguments]
    try:
        subprocess.run(
            command, stdin=end, stdout=end, stderr=end, env=environment, cwd=database.parent, timeout=60, check=True
        )
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
