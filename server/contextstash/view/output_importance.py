"""The importance of a view's outputs: which are superseded, and which belong to what the agent is working on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from contextstash.outputs.run_outcomes import find_test_run
from contextstash.view.outputs_in_use import MadeCall, protected_calls
from contextstash.view.session_snapshot import Place
from contextstash_storage.records import Output

MIN_REPEATED_SHARE = 0.9
"""A read is superseded if a later read of the file shows this share of its lines. A few edited lines may
differ; of another part of the file nearly all do."""

MAX_COMPARED = 50
"""With how many later reads of the same file a read is compared, the next ones: a bound on the time for a session that
reads one file all the time."""

_LINE_NUMBER = re.compile(r"^\s*\d+[→\t:|]\s?")


@dataclass(frozen=True, slots=True)
class Importance:
    """Places of outputs: those `superseded` by later ones are replaced first, those of the `working` set last."""

    superseded: frozenset[Place] = frozenset()
    working: frozenset[Place] = frozenset()


UNKNOWN = Importance()


def importance_of(outputs: Sequence[Output], texts: Mapping[Place, str]) -> Importance:
    """The importance of the outputs that have texts, those in the view. `outputs` are all of the session, in order.

    An output is superseded if a later one in the view is equal, or is a read of the same file with nearly all of its
    lines, or if the file was written as a whole later. The working set is the newest read of each file under edit, what
    was retrieved from the archive, and the output of the newest test run if tests failed in it.
    """
    calls = {(output.seq, output.block): MadeCall(output.handle, output.tool, output.argument) for output in outputs}
    # An output whose call another process has hidden meanwhile has a text, and is not among the session's any more.
    texts = {place: text for place, text in texts.items() if place in calls}
    shown = [output for output in outputs if (output.seq, output.block) in texts]
    superseded = _repeated(shown) | _read_again(shown, calls, texts) | _rewritten(outputs, calls, texts)
    protected = protected_calls(list(calls.values()))
    working = {place for place, call in calls.items() if call.call_id in protected and place in texts}
    working |= _failing_run(shown, texts)
    return Importance(frozenset(superseded), frozenset(working - superseded))


def _place(output: Output) -> Place:
    return output.seq, output.block


def _repeated(shown: Sequence[Output]) -> set[Place]:
    newest = {output.sha256: _place(output) for output in shown}
    return {_place(output) for output in shown if newest[output.sha256] != _place(output)}


def _read_again(shown: Sequence[Output], calls: Mapping[Place, MadeCall], texts: Mapping[Place, str]) -> set[Place]:
    """Goes back from the newest read; only reads with a path in common are compared, so that the time does not grow
    with the square of their number."""
    found: set[Place] = set()
    newer: dict[str, list[Place]] = {}
    lines = cache(lambda place: _lines(texts[place]))
    for place in (_place(output) for output in reversed(shown) if calls[_place(output)].shows_file):
        paths = calls[place].paths
        later = {other for path in paths for other in newer.get(path, ())[-MAX_COMPARED:]}
        if any(len(lines(place) & lines(other)) >= MIN_REPEATED_SHARE * len(lines(place)) > 0 for other in later):
            found.add(place)
        for path in paths:
            newer.setdefault(path, []).append(place)
    return found


def _lines(text: str) -> frozenset[str]:
    return frozenset(_LINE_NUMBER.sub("", line).strip() for line in text.splitlines())


def _rewritten(outputs: Sequence[Output], calls: Mapping[Place, MadeCall], texts: Mapping[Place, str]) -> set[Place]:
    written = {path: _place(output) for output in outputs if (path := calls[_place(output)].rewrites)}
    return {
        place
        for place in texts
        if calls[place].shows_file and any(written.get(path, (-1, 0)) > place for path in calls[place].paths)
    }


def _failing_run(shown: Sequence[Output], texts: Mapping[Place, str]) -> set[Place]:
    for output in reversed(shown):
        run = find_test_run(texts[_place(output)])
        if run is not None:
            return {_place(output)} if run.failed else set()
    return set()
