"""`contextstash clip`: the text of a pipe within limits, the whole text in the archive, and no output lost."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from contextstash.cli.scripts.clip import MAX_READ
from tests.support.command_line import CommandLine

LONG = "".join(f"line {number}\n" for number in range(1, 1_001)).encode()


def clip(contextstash: CommandLine, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The command at the end of a pipe, bytes in and bytes out."""
    done = contextstash.run_bytes("clip", *arguments, typed=data)
    assert done.returncode == 0, done.stderr
    return done


def whole(contextstash: CommandLine, shown: bytes) -> str:
    """The archived output that a notice names."""
    named = re.search(rb"whole output: (out_\w+)", shown)
    assert named is not None, shown
    done = contextstash.run("show", named.group(1).decode())
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def locked(contextstash: CommandLine) -> Iterator[None]:
    """The database while another process writes to it."""
    db = sqlite3.connect(contextstash.database, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        db.execute("ROLLBACK")
        db.close()


def test_a_text_within_the_limits_is_printed_unchanged(contextstash: CommandLine) -> None:
    done = clip(contextstash, b"all \xff\x00 fine\r\n")
    assert (done.stdout, done.stderr) == (b"all \xff\x00 fine\r\n", b"")
    assert not contextstash.database.exists()


def test_a_longer_text_is_cut_and_archived_whole(contextstash: CommandLine) -> None:
    done = clip(contextstash, LONG, "--lines", "10", "--cut", "head_tail")
    assert done.stderr == b""
    assert done.stdout.startswith(b"line 1\nline 2\nline 3\nline 4\n[contextstash: 992 lines cut here]\nline 997\n")
    assert whole(contextstash, done.stdout) == LONG.decode()


@pytest.mark.parametrize(
    ("limit", "most"),
    [(["--lines", "9"], 400), (["--chars", "300"], 300), (["--bytes", "300"], 300), (["--tokens", "90"], 400)],
)
@pytest.mark.parametrize("cut", ["head", "head_tail", "middle", "smart"])
def test_each_limit_and_each_cut_has_an_option(
    contextstash: CommandLine, limit: list[str], most: int, cut: str
) -> None:
    done = clip(contextstash, LONG, *limit, "--cut", cut)
    assert len(done.stdout) <= most
    assert b"[contextstash: " in done.stdout


def test_without_options_the_limits_of_the_settings_apply(contextstash: CommandLine) -> None:
    settings = contextstash.folder / "contextstash" / "contextstash.toml"  # the user's: a project may not set so few
    settings.parent.mkdir()
    settings.write_text("output_lines = 5\n")
    assert clip(contextstash, LONG).stdout.count(b"\n") == 5
    assert clip(contextstash, LONG, "--lines", "0").stdout == LONG


def test_the_limits_of_a_preset_apply(contextstash: CommandLine) -> None:
    done = clip(contextstash, LONG, "--preset", "byte-budget")
    assert done.stdout.startswith(LONG[:4_000])


def test_above_the_spill_threshold_only_a_preview_is_shown(contextstash: CommandLine) -> None:
    done = clip(contextstash, LONG, "--spill", "5000")
    assert b"too large to show, 8,893 characters" in done.stdout
    assert re.search(rb"SHA-256 [0-9a-f]{64}", done.stdout)
    assert whole(contextstash, done.stdout) == LONG.decode()


def test_the_archive_holds_the_command_line(contextstash: CommandLine) -> None:
    shown = clip(contextstash, LONG, "--lines", "5", "--tool", "make", "--argument", "make zebra").stdout
    hits = contextstash.json("search", "zebra", "--scope", "everywhere")["hits"]
    assert [handle for hit in hits if (handle := hit.get("handle")) and handle.encode() in shown]


def test_without_the_archive_nothing_is_stored(contextstash: CommandLine) -> None:
    done = clip(contextstash, LONG, "--lines", "5", "--no-archive")
    assert b"whole output" not in done.stdout
    assert not contextstash.database.exists()


def test_the_outputs_of_a_session_are_stored_in_a_child_session(contextstash: CommandLine) -> None:
    clip(contextstash, LONG, "--lines", "5", "--session", "orchard")
    assert contextstash.json("sessions")["sessions"] == []
    database = sqlite3.connect(contextstash.database)
    found = database.execute("SELECT session_id, parent_session_id FROM sessions").fetchall()
    database.close()
    assert found == [("orchard.outputs", "orchard")]


def test_bytes_that_are_not_text_are_replaced_in_print_and_archived_unchanged(contextstash: CommandLine) -> None:
    data = bytes(range(256)) * 20
    done = clip(contextstash, data, "--bytes", "600", "--cut", "head")
    assert len(done.stdout) <= 600
    assert "\ufffd" in done.stdout.decode()
    database = sqlite3.connect(contextstash.database)
    assert database.execute("SELECT count(*) FROM outputs").fetchone() == (1,)
    database.close()


def test_a_locked_database_leaves_the_text_uncut(contextstash: CommandLine) -> None:
    clip(contextstash, LONG, "--lines", "5")
    with locked(contextstash):
        done = clip(contextstash, LONG + b"more\n", "--lines", "5")
    assert done.stdout == LONG + b"more\n"
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("contextstash clip: passed through uncut: ")


def test_a_file_that_is_not_a_database_leaves_the_text_uncut(contextstash: CommandLine) -> None:
    contextstash.database.write_bytes(b"this is not a database" * 100)
    done = clip(contextstash, LONG, "--lines", "5")
    assert done.stdout == LONG
    assert b"passed through uncut" in done.stderr


@pytest.mark.parametrize("arguments", [["--preset", "stagd"], ["--set", "output_line=3"], ["--session", "a b"]])
def test_invalid_settings_leave_the_text_uncut(contextstash: CommandLine, arguments: list[str]) -> None:
    done = clip(contextstash, LONG, "--lines", "5", *arguments)
    assert done.stdout == LONG
    assert b"passed through uncut" in done.stderr


def test_a_text_above_the_memory_limit_is_printed_uncut(contextstash: CommandLine) -> None:
    data = b"0123456789abcde\n" * (MAX_READ // 16) + b"the last line\n"
    done = clip(contextstash, data, "--lines", "5")
    assert done.stdout == data
    assert b"more than 32 MiB" in done.stderr
