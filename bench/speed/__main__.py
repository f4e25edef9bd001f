"""Measures the service by the length of a session, next to floors and rivals.

    python -m bench.speed [--lengths 1000,5000,20000,100000] [--keep FOLDER] [--parts turns,prune,compact,search]

Each length is measured in a process of its own, on a copy of a database that is built once and kept in FOLDER.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from .database import build_rate, built, compressed_size
from .operations import MEGABYTE, PARTS, measure

LENGTHS = (1_000, 5_000, 20_000, 100_000)


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        with tempfile.TemporaryDirectory(dir=arguments.keep) as folder:
            found = asyncio.run(measure(arguments.measure, Path(folder), frozenset(arguments.parts)))
        print(json.dumps(found))
        return
    columns = {length: _of_length(length, arguments) for length in arguments.lengths}
    _print_table(columns)
    if arguments.json:
        arguments.json.write_text(json.dumps(columns, indent=1), encoding="utf-8")


def _of_length(length: int, arguments: argparse.Namespace) -> dict[str, float]:
    path = built(arguments.keep, length)
    command = [sys.executable, "-m", "bench.speed", "--measure", str(path), "--keep", str(arguments.keep)]
    parts = ["--parts", ",".join(arguments.parts)] if arguments.parts else []
    run = subprocess.run([*command, *parts], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    size = path.stat().st_size
    found["database MB"] = size / MEGABYTE
    found["database / compressed JSON"] = size / compressed_size(length)
    found["recorded in batches, 1/s"] = build_rate(path)
    return found


def _print_table(columns: dict[int, dict[str, float]]) -> None:
    names = list(dict.fromkeys(name for found in columns.values() for name in found))
    print(f"{'':32}" + "".join(f"{length:>12,}" for length in columns))
    for name in names:
        row = "".join(f"{found[name]:>12,.2f}" if name in found else f"{'':>12}" for found in columns.values())
        print(f"{name:32}{row}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=_numbers, default=LENGTHS)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "contextstash-speed")
    parser.add_argument("--parts", type=_parts, default=())
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _parts(text: str) -> tuple[str, ...]:
    unknown = set(text.split(",")) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    return tuple(text.split(","))


main()
