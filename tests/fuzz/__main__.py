"""Fuzzes the targets: `python -m tests.fuzz [TARGET …] --seconds N [--keep FOLDER]`, or `make fuzz HOURS=1`.

With atheris (not declared: `pip install atheris`, up to Python 3.13) inputs that reach code which no other has reached
are kept and changed further; without it, inputs of the seeds alone are changed. Each defect is printed once, with the
input that showed it in --keep; exit code 1 if there was one. Seeds are the recorded sessions beside the repository,
if they are there, and a few short ones. Each target runs in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import subprocess
import sys
import time
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

MAX_INPUT_BYTES = 20_000
SLOW_SECONDS = 5.0
"""An input of at most MAX_INPUT_BYTES that takes longer is a defect."""


class Run:
    """Calls a target, and remembers each defect once: by the innermost lines of the product that raised it."""

    def __init__(self, name: str, seconds: float, keep: Path) -> None:
        from tests.fuzz.targets import TARGETS

        self._target, self._name, self._keep = TARGETS[name], name, keep
        self._target(b"")  # what is imported at the first use must not count as slow
        self._until = time.monotonic() + seconds
        self.begun, self.executions = time.monotonic(), 0
        self.defects: dict[str, str] = {}

    def once(self, data: bytes) -> None:
        begun = time.monotonic()
        self.executions += 1
        try:
            self._target(data)
        except Exception as error:
            self._note(data, error, traceback.format_exc())
        if time.monotonic() - begun > SLOW_SECONDS:
            self._note(data, TimeoutError(f"took {time.monotonic() - begun:.1f} s"), "")
        if time.monotonic() > self._until:
            self.end()

    def _note(self, data: bytes, error: Exception, text: str) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(frames[-2:]))
        known = f"{type(error).__name__} {where}"
        if known in self.defects:
            return
        self._keep.mkdir(parents=True, exist_ok=True)
        file = self._keep / f"{self._name}-{len(self.defects)}.bin"
        file.write_bytes(data)
        self.defects[known] = str(file)
        print(f"{self._name}: {known}: {str(error)[:300]} ({file})\n{text[-1500:]}", flush=True)

    def end(self) -> None:
        seconds = time.monotonic() - self.begun
        print(
            f"{self._name}: {self.executions:,} executions in {seconds:.0f} s, {len(self.defects)} defects", flush=True
        )
        os._exit(1 if self.defects else 0)  # libFuzzer would go on


def _with_atheris(run: Run, corpus: Path) -> None:
    atheris = import_module("atheris")
    from tests.fuzz.mutation import mutated

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.3:
            return bytes(atheris.Mutate(data, max_size))
        return mutated(data, rng)[:max_size]

    options = [f"-max_len={MAX_INPUT_BYTES}", "-rss_limit_mb=0", "-timeout=120", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], run.once, custom_mutator=change)
    atheris.Fuzz()


def _without(run: Run, seeds: list[bytes]) -> None:
    from tests.fuzz.mutation import mutated

    rng = random.Random(1)
    for data in seeds:
        run.once(data)
    while True:
        run.once(mutated(rng.choice(seeds), rng)[:MAX_INPUT_BYTES])


def fuzz(name: str, seconds: float, keep: Path) -> None:
    """Fuzz one target; ends the process."""
    logging.disable()
    keep.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(Path(__file__).parents[2]))
    guided = find_spec("atheris") is not None
    if guided:
        instrumented = import_module("atheris").instrument_imports(include=["contextstash", "contextstash_storage"])
        with instrumented, (keep / "instrumented.log").open("w") as log, contextlib.redirect_stderr(log):
            import_module("tests.fuzz.targets")
    from tests.fuzz.seeds import seeds_of

    seeds = [seed[:MAX_INPUT_BYTES] for seed in seeds_of(name)]
    run = Run(name, seconds, keep)
    if not guided:
        _without(run, seeds)
    corpus = keep / f"corpus-{name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    _with_atheris(run, corpus)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="names of targets, or the beginning of some; by default all")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target [60]")
    parser.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--keep", type=Path, default=Path("/tmp/contextstash-fuzz"), help="where inputs are kept")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        fuzz(arguments.targets[0], arguments.seconds, arguments.keep)
    from tests.fuzz.targets import TARGETS

    names = [name for name in TARGETS if name.startswith(tuple(arguments.targets) or "")]
    seconds = arguments.seconds if arguments.hours is None else 3_600 * arguments.hours
    options = ["--seconds", str(seconds), "--keep", str(arguments.keep), "--here"]
    failed = [name for name in names if subprocess.run([sys.executable, "-m", "tests.fuzz", name, *options]).returncode]
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
