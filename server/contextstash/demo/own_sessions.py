"""What filled the windows of the user's own sessions, read into a temporary database. Nothing is written or sent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from contextstash_storage.errors import ContextstashError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash_storage.records import Output
    from contextstash_storage.store import SessionStore

MAX_SESSIONS = 12
"""Newest transcripts that are read. A guess: enough for a picture, some seconds of work."""

MAX_BYTES = 30_000_000
"""Total size of the transcripts that are read: about 10 s on two cores."""

SETTINGS = {"automatic": False}
"""Sessions are shown as they were."""

KEPT_OUTPUTS = 5
"""The newest outputs of a session that are taken as still in use. A guess."""

SEARCHES = 3

MAX_WORDS = 6
"""What a person would type of a longer command. A guess."""

MAX_FOLDERS = 2
"""How many of the last names of a path a person would type. A guess."""

MIN_SEARCHED_TOKENS = 300
"""An output that is worth finding again. A guess."""


@dataclass(frozen=True)
class Found:
    """One search: its words, and the output that it found, if it did."""

    words: str
    tool: str
    tokens: int
    handle: str | None
    seconds: float


@dataclass
class Survey:
    """What the sessions hold, in tokens. `old_outputs` are those of outputs older than each session's newest."""

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
    from contextstash.hosts.following.discovery import transcripts_in
    from contextstash.hosts.following.follower import FILES

    folders = [folder for files in FILES.values() if (folder := files.folder(home)) is not None and folder.is_dir()]
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
    from contextstash.hosts.following.ingest import ingest
    from contextstash.hosts.readers.kinds import recognize

    result = Survey(transcripts=len(transcripts))
    largest: dict[str, Output] = {}
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
        if name and name not in largest and (output := await _count(stash, store, name, result)):
            largest[name] = output
    for name, output in sorted(largest.items(), key=lambda each: -each[1].tokens)[:SEARCHES]:
        result.searches.append(await _searched(stash, name, output))
    return result


async def _count(stash: Stash, store: SessionStore, session_id: str, result: Survey) -> Output | None:
    """Add a session to the survey. Returns its largest output that has words to search for."""
    session = await stash.read_session(session_id)
    if not session.counters.messages:
        return None
    outputs = await store.read_outputs(session_id)
    result.sessions += 1
    result.messages += session.counters.messages
    result.tokens += session.counters.appended
    for output in outputs:
        result.tools[output.tool] += output.tokens
        result.calls[output.tool] += 1
    result.old_outputs += sum(output.tokens for output in outputs[:-KEPT_OUTPUTS])
    worth = [each for each in outputs[:-KEPT_OUTPUTS] if each.tokens >= MIN_SEARCHED_TOKENS and each.argument]
    return max(worth, key=lambda each: each.tokens, default=None)


async def _searched(stash: Stash, session_id: str, output: Output) -> Found:
    """Search for an output by the argument of its call, as somebody would who remembers what was looked at."""
    words = _remembered(output.argument)
    started = time.perf_counter()
    hits = (await stash.search_history(words, session_id=session_id, scope="session", unseen_first=False)).hits
    seconds = time.perf_counter() - started
    handle = output.handle if any(hit.handle == output.handle for hit in hits) else None
    return Found(words, output.tool, output.tokens, handle, seconds)


def _remembered(argument: str) -> str:
    """What a person remembers of a call: the beginning of its command, the ends of its paths."""
    words = argument.split()[:MAX_WORDS]
    return " ".join("/".join(word.split("/")[-MAX_FOLDERS:]) for word in words)
