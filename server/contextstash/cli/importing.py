"""`contextstash import`: recorded sessions of other programs, read from their files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import Opening, database_options
from contextstash.cli.printing import print_table
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

SUFFIXES = (".jsonl", ".json", ".traj")


@dataclass(frozen=True)
class Imported:
    """What became of one file."""

    file: str
    session_id: str | None = None
    recorded: int = 0
    duplicates: int = 0
    error: str | None = None


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@database_options
def import_files(opening: Opening, as_json: bool, files: tuple[Path, ...]) -> int:
    """Record the sessions in FILES: transcripts, or folders of them. Safe to repeat.

    Exit code 1 where a file could not be read; the others are recorded all the same.
    """
    paths = _transcripts(files)

    async def work(stash: Stash) -> list[Imported]:
        with _progress(len(paths)) as advance:
            results = []
            for path in paths:
                results += await _import_one(stash, path)
                advance(path.name)
            return results

    results = opening.run(work)
    if as_json:
        import json

        click.echo(json.dumps([_without_absent(result) for result in results], ensure_ascii=False, indent=2))
    else:
        _print(results)
    return 1 if any(result.error for result in results) else 0


def _transcripts(given: Sequence[Path]) -> list[Path]:
    """The files named, and those in the folders named. Raises BadInputError where a folder has none."""
    paths: list[Path] = []
    for path in given:
        if not path.is_dir():
            paths.append(path)
            continue
        found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        if not found:
            raise BadInputError(f"{path} holds no {' or '.join(SUFFIXES)} files.")
        paths += found
    return list(dict.fromkeys(paths))


async def _import_one(stash: Stash, path: Path) -> list[Imported]:
    from contextstash.hosts.ingest import ingest

    try:
        report = await ingest(stash, path)
    except ContextstashError as error:
        return [Imported(str(path), error=str(error))]
    except OSError as error:
        return [Imported(str(path), error=f"cannot be read: {error.strerror or error}")]
    return [Imported(str(path), report.session_id, report.recorded, report.duplicates)]


def _without_absent(result: Imported) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if value is not None}


def _print(results: Sequence[Imported]) -> None:
    done = [result for result in results if result.error is None]
    if done:
        rows = [(result.session_id, result.recorded, result.duplicates, result.file) for result in done]
        print_table(["session", "recorded", "duplicates", "file"], rows)
    for result in results:
        if result.error:
            click.echo(f"Not imported: {result.file}: {' '.join(result.error.split())}", err=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Importing", total=total)
        yield lambda name: progress.update(task, advance=1, description=name)
