"""Measures the service by the length of a session.

    python -m bench.speed [--lengths 1000,20000,100000,200000] [--keep FOLDER] [--parts turns,prune,compact,search]
                          [--postgresql [ADDRESS]] [--postgresql-lengths 1000,20000] [--json FILE]

Each length is measured in a process of its own, on a copy of a database that is built once and kept in FOLDER. With
`--postgresql` some lengths are measured in PostgreSQL too, in databases of the server at ADDRESS, or of one that is
started for the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from contextstash.base.process import own_interpreter

from .database import build, build_rate, built, compressed_size
from .operations import MEGABYTE, PARTS, measure
from .postgresql import SERVER, analyzed, new_database, server_address, size
from .table import Columns, table

LENGTHS = (1_000, 20_000, 100_000, 200_000)
POSTGRESQL_LENGTHS = (1_000, 20_000)


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        own_interpreter()  # as a server does
        with tempfile.TemporaryDirectory(dir=arguments.keep) as folder:
            work = measure(_database(arguments.measure), Path(folder), frozenset(arguments.parts))
            found = asyncio.run(work)
        print(json.dumps(found))
    else:
        columns, postgresql = _measured(arguments), _measured_in_postgresql(arguments)
        print(table(columns, postgresql))
        if arguments.json:
            figures = {"columns": columns, "postgresql": postgresql}
            arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _measured(arguments: argparse.Namespace) -> Columns:
    return {length: _of_length(length, arguments) for length in arguments.lengths}


def _measured_in_postgresql(arguments: argparse.Namespace) -> Columns:
    if not arguments.postgresql:
        return {}
    columns = {}
    with server_address(arguments.postgresql) as server:
        for length in arguments.postgresql_lengths:
            columns[length] = asyncio.run(_of_length_in_postgresql(server, length, arguments))
    return columns


async def _of_length_in_postgresql(server: str, length: int, arguments: argparse.Namespace) -> dict[str, float]:
    async with new_database(server) as address:
        rate = await build(address, length)
        await analyzed(address)
        found = await asyncio.to_thread(_in_process, address, arguments)
        found["database, MB"] = await size(address) / MEGABYTE
        found["database / compressed JSON"] = found["database, MB"] * MEGABYTE / compressed_size(length)
        found["recorded in batches, messages a second"] = rate
    return found


def _in_process(database: Path | str, arguments: argparse.Namespace) -> dict[str, float]:
    """What is measured of a database, in a process of its own."""
    command = [sys.executable, "-m", "bench.speed", "--measure", str(database), "--keep", str(arguments.keep)]
    parts = ["--parts", ",".join(arguments.parts)] if arguments.parts else []
    run = subprocess.run([*command, *parts], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def _database(text: str) -> Path | str:
    return text if text.startswith("postgresql:") else Path(text)


def _of_length(length: int, arguments: argparse.Namespace) -> dict[str, float]:
    path = built(arguments.keep, length)
    found = _in_process(path, arguments)
    stored = path.stat().st_size
    found["database, MB"] = stored / MEGABYTE
    found["database / compressed JSON"] = stored / compressed_size(length)
    found["recorded in batches, messages a second"] = build_rate(path)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=_numbers, default=LENGTHS)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "contextstash-speed")
    parser.add_argument("--parts", type=_parts, default=())
    parser.add_argument("--postgresql", nargs="?", const=SERVER, metavar="ADDRESS")
    parser.add_argument("--postgresql-lengths", type=_numbers, default=POSTGRESQL_LENGTHS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _parts(text: str) -> tuple[str, ...]:
    unknown = set(text.split(",")) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    return tuple(text.split(","))


main()
