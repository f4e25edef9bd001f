"""Reads the user's own sessions into a temporary database, and sums up what filled their windows. Nothing is written or
sent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash_storage.records import Output
    from contextstash_storage.store import SessionStore

MAX_SESSIONS = 12
"""Newest transcripts that are read. Enough for a picture, and some seconds of work."""

MAX_BYTES = 30_000_000
"""Total size of the transcripts that are read: about 10 s on two cores."""

SETTINGS = {"automatic": False}
"""Sessions are shown as they were."""

KEPT_OUTPUTS = 5
"""The newest outputs of a session that are taken as still in use."""

SEARCHES = 3

MAX_WORDS = 6
"""Words that a person would type of a longer command."""

MAX_FOLDERS = 2
"""How many of the last names of a path a person would type."""

MIN_SEARCHED_TOKENS = 300
"""An output of so many tokens is worth finding again."""


@dataclass(frozen=True)
class Found:
    """One search: its words, and the output that it found with its place among the hits, if it did. `times` is how
    often the session made that call: what is read again is what somebody would search for."""

    words: str
    tool: str
    times: int
    handle: str | None
    place: int | None
    seconds: float


@dataclass(frozen=True)
class Wanted:
    """An output to search for: the largest of those that a session got by the same call. `same` are their handles."""

    session_id: str
    output: Output
    same: frozenset[str]

    @property
    def rank(self) -> tuple[int, int]:
        return len(self.same), self.output.tokens


@dataclass
class Survey:
    """The content of the sessions, in tokens. `old_outputs` are those of outputs older than each session's newest."""

    sessions: int = 0
    transcripts: int = 0
    messages: int = 0
    tokens: int = 0
    tools: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    old_outputs: int = 0
    searches: list[Found] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        """Tokens of all tool outputs."""
        return sum(self.tools.values())


def newest_transcripts(home: Path) -> list[Path]:
    """The transcripts of all clients that can be followed, newest first."""
    from contextstash.clients.client import clients
    from contextstash.clients.recognition import transcripts_in

    folders = [
        folder
        for each in clients()
        if each.files is not None and (folder := each.files.folder(home)) is not None and folder.is_dir()
    ]
    times: dict[Path, float] = {}
    for folder in folders:
        for path in transcripts_in(folder):
            try:
                times[path] = path.stat().st_mtime
            except OSError:
                continue
    return sorted(times, key=lambda path: -times[path])


async def survey(stash: Stash, store: SessionStore, transcripts: Sequence[Path]) -> Survey:
    """Read the newest of these transcripts. One that cannot be read is left out."""
    from contextstash.clients.follow import ingest
    from contextstash.clients.recognition import recognize

    result = Survey(transcripts=len(transcripts))
    wanted: dict[str, list[Wanted]] = {}
    size = 0
    for path in transcripts:
        try:
            size += path.stat().st_size
            if result.sessions and (result.sessions >= MAX_SESSIONS or size > MAX_BYTES):
                break
            report = await ingest(stash, path, reader=recognize(path))
        except (OSError, ContextstashError):
            continue
        name = report.session_id
        if name and name not in wanted:
            wanted[name] = await _count(stash, store, name, result)
    for each in _chosen(list(wanted.values())):
        result.searches.append(await _searched(stash, each))
    return result


def _chosen(wanted: Sequence[Sequence[Wanted]]) -> list[Wanted]:
    """The searches to show: the first of each session, then the second ones, those that were read most often first."""
    rounds = zip_longest(*wanted)
    ordered = (sorted(filter(None, each), key=lambda one: one.rank, reverse=True) for each in rounds)
    by_words: dict[str, Wanted] = {}
    for each in chain.from_iterable(ordered):
        by_words.setdefault(_remembered(each.output.argument), each)
    return list(by_words.values())[:SEARCHES]


async def _count(stash: Stash, store: SessionStore, session_id: str, result: Survey) -> list[Wanted]:
    """Add a session to the survey. Returns its outputs that have words to search for, the most often read first."""
    session = await stash.read_session(session_id)
    if not session.counters.messages:
        return []
    outputs = await store.read_outputs(session_id)
    old = {output.handle for output in outputs[:-KEPT_OUTPUTS]}
    result.sessions += 1
    result.messages += session.counters.messages
    result.tokens += session.counters.appended
    by_call: dict[tuple[str, str], list[Output]] = {}
    for output in outputs:
        result.tools[output.tool] += output.tokens
        result.calls[output.tool] += 1
        result.old_outputs += output.tokens if output.handle in old else 0
        by_call.setdefault((output.tool, output.argument), []).append(output)
    worth = []
    for (_, argument), same in by_call.items():
        large = [output for output in same if output.handle in old and output.tokens >= MIN_SEARCHED_TOKENS]
        if argument and large:
            handles = frozenset(output.handle for output in same)
            worth.append(Wanted(session_id, max(large, key=lambda output: output.tokens), handles))
    return sorted(worth, key=lambda one: one.rank, reverse=True)[:SEARCHES]


async def _searched(stash: Stash, wanted: Wanted) -> Found:
    """Search for an output by the argument of its call, as somebody would who remembers what was looked at. Any output
    of the same call counts as found: a search leaves out those that show the same."""
    words = _remembered(wanted.output.argument)
    started = time.perf_counter()
    hits = (await stash.search_history(words, session_id=wanted.session_id, scope="session", unseen_first=False)).hits
    seconds = time.perf_counter() - started
    places = [(hit.handle, number) for number, hit in enumerate(hits, start=1) if hit.handle in wanted.same]
    handle, place = places[0] if places else (None, None)
    return Found(words, wanted.output.tool, len(wanted.same), handle, place, seconds)


def _remembered(argument: str) -> str:
    """The part of a call that a person remembers: the beginning of its command, the ends of its paths."""
    words = argument.split()[:MAX_WORDS]
    return " ".join("/".join(word.split("/")[-MAX_FOLDERS:]) for word in words)
