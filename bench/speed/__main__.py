"""Measures the service by the length of a session, next to what the work takes at least.

    python -m bench.speed [--lengths 1000,20000,100000,200000] [--keep FOLDER] [--parts turns,prune,compact,search]
                          [--writers] [--bare] [--postgresql [ADDRESS]] [--postgresql-lengths 1000,20000]
                          [--rivals FOLDER] [--json FILE] [--svg FILE]

Each length is measured in a process of its own, on a copy of a database that is built once and kept in FOLDER. With
`--postgresql` some lengths are measured in PostgreSQL too, in databases of the server at ADDRESS, or of one that is
started for the run. With `--rivals` other programs are installed below FOLDER, and do a part of the same work. With
`--from FILE` nothing is measured: the tables and the chart are those of the figures in FILE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from contextstash.process.own_interpreter import own_interpreter

from .chart import Columns, chart, table
from .database import build, build_rate, built, compressed_size
from .floors import bare_server, floors
from .operations import MEGABYTE, PARTS, measure
from .postgresql import SERVER, analyzed, new_database, server_address, size
from .rivals import compared, rival_table
from .writers import waits, write

LENGTHS = (1_000, 20_000, 100_000, 200_000)
POSTGRESQL_LENGTHS = (1_000, 20_000)


def main() -> None:
    arguments = _arguments()
    if arguments.write:
        write(Path(arguments.write[0]), arguments.write[1])
    elif arguments.measure:
        own_interpreter()  # as a server does
        with tempfile.TemporaryDirectory(dir=arguments.keep) as folder:
            work = measure(_database(arguments.measure), Path(folder), frozenset(arguments.parts))
            found = asyncio.run(work)
        print(json.dumps(found))
    else:
        figures = _read(arguments.figures) if arguments.figures else _all_measured(arguments)
        print(table(figures.columns, figures.postgresql))
        if figures.rivals:
            print(f"\n{rival_table(figures.rivals)}")
        if arguments.svg:
            arguments.svg.write_text(chart(figures.columns), encoding="utf-8")


@dataclass(frozen=True)
class Figures:
    """By length in SQLite, by length in PostgreSQL, and those of other programs."""

    columns: Columns
    postgresql: Columns
    rivals: Mapping[str, Mapping[str, float]]


def _all_measured(arguments: argparse.Namespace) -> Figures:
    rivals = compared(arguments.rivals) if arguments.rivals else {}
    figures = Figures(_measured(arguments), _measured_in_postgresql(arguments), rivals)
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(figures), indent=1), encoding="utf-8")
    return figures


def _measured(arguments: argparse.Namespace) -> Columns:
    columns = {length: _of_length(length, arguments) for length in arguments.lengths}
    with tempfile.TemporaryDirectory(dir=arguments.keep) as folder:
        columns[arguments.lengths[0]] |= floors(Path(folder))
    if arguments.writers:
        columns[arguments.lengths[0]] |= waits(arguments.keep)
    if arguments.bare:
        columns[arguments.lengths[0]] |= bare_server()
    return columns


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


def _read(path: Path) -> Figures:
    stored = json.loads(path.read_text(encoding="utf-8"))
    columns, postgresql = (
        {int(length): figures for length, figures in stored[name].items()} for name in ("columns", "postgresql")
    )
    return Figures(columns, postgresql, stored["rivals"])


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
    parser.add_argument("--writers", action="store_true", help="also 8 processes that write to one file")
    parser.add_argument("--bare", action="store_true", help="also start and calls relative to a bare server")
    parser.add_argument("--postgresql", nargs="?", const=SERVER, metavar="ADDRESS")
    parser.add_argument("--postgresql-lengths", type=_numbers, default=POSTGRESQL_LENGTHS)
    parser.add_argument("--rivals", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--from", type=Path, dest="figures", metavar="FILE")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _parts(text: str) -> tuple[str, ...]:
    unknown = set(text.split(",")) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    return tuple(text.split(","))


main()
