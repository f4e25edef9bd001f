"""Measures retention and cost on folders of recorded sessions, next to keeping the last messages and to masking.

    python -m bench.fidelity FOLDER… --budgets 16000,32000 [--json FILE]

A folder holds sessions as Chat Completions messages, one session a file, one message a line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from contextstash import __version__

from .baselines import BASELINES, Policy
from .product import product
from .retention import Measured, measure
from .sessions import Session, read_sessions

REFERENCE = "keep last, cut to half"


def main() -> None:
    arguments = _arguments()
    results = []
    for folder in arguments.folders:
        sessions = list(read_sessions(folder, arguments.part))
        for budget in arguments.budgets:
            measured = _measure_all(sessions, _policies(arguments.only), budget)
            _print_table(folder.name, budget, measured)
            results.append(
                {
                    "folder": folder.name,
                    "budget": budget,
                    "version": __version__,
                    "policies": {name: found.as_json() for name, found in measured.items()},
                }
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--budgets", type=lambda text: [int(part) for part in text.split(",")], default=[16_000])
    parser.add_argument("--part", choices=("all", "dev", "held"), default="all", help="every second session, or all")
    parser.add_argument("--only", help="only policies whose name contains this")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    return parser.parse_args()


def _policies(only: str | None) -> dict[str, Policy]:
    found: dict[str, Policy] = {**BASELINES, "contextstash": product()}
    return {name: policy for name, policy in found.items() if not only or only in name or name == REFERENCE}


def _measure_all(sessions: Iterable[Session], policies: dict[str, Policy], budget: int) -> dict[str, Measured]:
    totals = {name: Measured([]) for name in policies}
    for session in sessions:
        for name, policy in policies.items():
            totals[name].add(measure(session, policy, budget))
        print(f"  {session.name}", file=sys.stderr, flush=True)
    return totals


def _print_table(folder: str, budget: int, measured: dict[str, Measured]) -> None:
    points = len(measured[REFERENCE].points)
    print(f"{folder}, {budget:,} tokens: {points} cuts, {measured[REFERENCE].facts} facts needed")
    print(f"  {'policy':<46} in view  1 search  cost  view  over  invalid")
    for name, found in measured.items():
        search = "" if found.one_search is None else f"{found.one_search:.1f}"
        print(
            f"  {name:<46} {found.in_view:7.1f} {search:>9} {_relative(found, measured):5.2f}"
            f" {found.mean_tokens / budget:5.2f} {found.over_budget:5} {found.invalid:8}"
        )


def _relative(found: Measured, measured: dict[str, Measured]) -> float:
    return found.cost / measured[REFERENCE].cost if measured[REFERENCE].cost else 0.0


if __name__ == "__main__":
    main()
