"""Measures the service by the length of a session, next to what the work takes at least.

    python -m bench.speed [--lengths 1000,5000,20000,100000] [--keep FOLDER] [--parts turns,prune,compact,search]
                          [--writers] [--json FILE] [--svg FILE]

Each length is measured in a process of its own, on a copy of a database that is built once and kept in FOLDER. With
`--from FILE` nothing is measured: the table and the chart are those of the figures in FILE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from .chart import Columns, chart, table
from .database import build_rate, built, compressed_size
from .floors import floors
from .operations import MEGABYTE, PARTS, measure
from .writers import waits, write

LENGTHS = (1_000, 5_000, 20_000, 100_000)


def main() -> None:
    arguments = _arguments()
    if arguments.write:
        write(Path(arguments.write[0]), arguments.write[1])
    elif arguments.measure:
        with tempfile.TemporaryDirectory(dir=arguments.keep) as folder:
            found = asyncio.run(measure(arguments.measure, Path(folder), frozenset(arguments.parts)))
        print(json.dumps(found))
    else:
        columns = _read(arguments.figures) if arguments.figures else _measured(arguments)
        print(table(columns))
        if arguments.svg:
            arguments.svg.write_text(chart(columns), encoding="utf-8")


def _measured(arguments: argparse.Namespace) -> Columns:
    columns = {length: _of_length(length, arguments) for length in arguments.lengths}
    with tempfile.TemporaryDirectory(dir=arguments.keep) as folder:
        columns[arguments.lengths[0]] |= floors(Path(folder))
    if arguments.writers:
        columns[arguments.lengths[0]] |= waits(arguments.keep)
    if arguments.json:
        arguments.json.write_text(json.dumps(columns, indent=1), encoding="utf-8")
    return columns


def _read(path: Path) -> Columns:
    return {int(length): figures for length, figures in json.loads(path.read_text(encoding="utf-8")).items()}


def _of_length(length: int, arguments: argparse.Namespace) -> dict[str, float]:
    path = built(arguments.keep, length)
    command = [sys.executable, "-m", "bench.speed", "--measure", str(path), "--keep", str(arguments.keep)]
    parts = ["--parts", ",".join(arguments.parts)] if arguments.parts else []
    run = subprocess.run([*command, *parts], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    size = path.stat().st_size
    found["database, MB"] = size / MEGABYTE
    found["database / compressed JSON"] = size / compressed_size(length)
    found["recorded in batches, messages a second"] = build_rate(path)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=_numbers, default=LENGTHS)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "contextstash-speed")
    parser.add_argument("--parts", type=_parts, default=())
    parser.add_argument("--writers", action="store_true", help="also 8 processes that write to one file")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--from", type=Path, dest="figures", metavar="FILE")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
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
