"""Measures retention, cost and the truth of summaries on folders of recorded sessions.

    python -m bench.fidelity FOLDER… --budgets 16000,32000 [--json FILE] [--svg FOLDER]

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
from .curves import curves
from .product import product
from .retention import Measured, measure
from .rivals import installed_rivals
from .sessions import Session, read_sessions
from .summaries import Truth, check_summaries

REFERENCE = "keep last, cut to half"

LOW_WATERS = (0.3, 0.4, 0.5, 0.6, 0.7)
"""The low-water marks of the curve."""


def main() -> None:
    arguments = _arguments()
    results = []
    for folder in arguments.folders:
        sessions = list(read_sessions(folder, arguments.part))
        for budget in arguments.budgets:
            measured = _measure_all(sessions, _policies(arguments.only, arguments.curve), budget)
            _print_table(folder.name, budget, measured)
            truth = Truth()
            for session in sessions if arguments.summaries else ():
                truth.add(check_summaries(session, budget))
            if arguments.summaries:
                print(f"  summaries: {truth}")
            results.append(
                {
                    "folder": folder.name,
                    "budget": budget,
                    "version": __version__,
                    "policies": {name: found.as_json() for name, found in measured.items()},
                    "summaries": vars(truth),
                }
            )
            if arguments.svg:
                arguments.svg.mkdir(parents=True, exist_ok=True)
                path = arguments.svg / f"{folder.name}-{budget}.svg"
                path.write_text(_svg(f"{folder.name}, {budget:,} tokens", measured), encoding="utf-8")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--budgets", type=lambda text: [int(part) for part in text.split(",")], default=[16_000])
    parser.add_argument("--part", choices=("all", "dev", "held"), default="all", help="every second session, or all")
    parser.add_argument("--only", help="only policies whose name contains this")
    parser.add_argument("--curve", action="store_true", help="contextstash at several low-water marks")
    parser.add_argument("--summaries", action="store_true", help="check the summaries too")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    parser.add_argument("--svg", type=Path, help="write a curve for each folder and budget to this folder")
    return parser.parse_args()


def _policies(only: str | None, curve: bool) -> dict[str, Policy]:
    found: dict[str, Policy] = {**BASELINES, **installed_rivals(), "contextstash": product()}
    if curve:
        found |= {f"contextstash, low water {mark}": product(low_water=mark) for mark in LOW_WATERS}
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


def _svg(title: str, measured: dict[str, Measured]) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for name, found in measured.items():
        point = (_relative(found, measured), found.in_view)
        series.setdefault(name.split(", low water")[0], []).append(point)
    return curves(title, series)


if __name__ == "__main__":
    main()
