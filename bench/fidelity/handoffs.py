"""Measures hand-offs after the real compactions of recorded sessions: what the agent needed next, and where it stands.

    python -m bench.fidelity.handoffs FOLDER [--tokens 2500,5000]

A folder holds sessions as for `bench.fidelity`, with the client's own summaries marked (`meta.compact_summary`). A fact
is needed if a tool output showed it before the compaction, the user did not, and the agent writes it within the next 60
messages; of these, those are counted too that nothing had shown again by then. Beside facts, the old lines of the next
five edits: whether each stands in the hand-off as a whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.stash import Stash
from contextstash_storage.records import Cursor
from contextstash_storage.sqlite import open_sqlite

from .facts import facts_of
from .needs import LATER_MESSAGES
from .product import MAX_HITS, MODEL, SESSION, first_query
from .sessions import Said, Session, arguments_of, read_sessions, tokens_of_text

MIN_NEEDED = 5
"""Compactions after which fewer facts are needed are not measured: their share would be noise."""

EDITS = 5
"""How many of the next edits are looked at."""


@dataclass(frozen=True)
class Compaction:
    """A client's compaction: the messages before it, its summary, and the messages after it up to the next one."""

    before: Sequence[Said]
    summary: Said
    after: Sequence[Said]

    @cached_property
    def needed(self) -> frozenset[str]:
        shown = frozenset[str]().union(*(message.facts for message in self.before if message.role == "tool"))
        told = (message.facts for message in self.before if message.role == "user" and not message.is_summary)
        written = (message.facts for message in self.after if message.role == "assistant")
        return (frozenset[str]().union(*written) & shown) - frozenset[str]().union(*told)

    @property
    def unseen(self) -> frozenset[str]:
        """The needed facts that the agent writes before any message after the compaction shows them again."""
        shown: set[str] = set()
        found: set[str] = set()
        for message in self.after:
            if message.role == "assistant":
                found |= (message.facts & self.needed) - shown
            shown |= message.facts
        return frozenset(found)

    @property
    def old_lines(self) -> list[set[str]]:
        """The lines that each of the next edits replaces. The first and the last may be parts of lines."""
        found = []
        for arguments in (each for message in self.after for each in arguments_of(message.native)):
            try:
                old = json.loads(arguments).get("old_string")
            except (ValueError, AttributeError):
                continue
            if isinstance(old, str) and old.strip():
                lines = old.split("\n")
                found.append(set(lines[1:-1] or lines[:1]))
        return found[:EDITS]


def compactions_of(session: Session) -> Iterator[Compaction]:
    """The client's compactions of a session after which enough facts are needed."""
    messages = session.messages
    for place, message in enumerate(messages):
        if message.is_summary:
            later = messages[place + 1 : place + 1 + LATER_MESSAGES]
            end = next((at for at, each in enumerate(later) if each.is_summary), len(later))
            found = Compaction(messages[:place], message, later[:end])
            if len(found.needed) >= MIN_NEEDED:
                yield found


async def measure(compaction: Compaction, max_tokens: int) -> Counter[str]:
    """How many of the needed facts, and of the next edits, stand where."""
    with tempfile.TemporaryDirectory(prefix="contextstash-bench") as folder:
        stash = Stash(await open_sqlite(Path(folder) / "sessions.db"), settings={"automatic": False})
        try:
            await _record(stash, compaction)
            text = await stash.hand_off(SESSION, max_tokens=max_tokens) or ""
            found = await _found(stash, compaction)
        finally:
            await stash.close()
    needed, client, ours = compaction.needed, compaction.summary.facts, facts_of(text)
    lines = set(text.split("\n"))
    return Counter(
        needed=len(needed),
        client=len(needed & client),
        ours=len(needed & ours),
        both=len(needed & (ours | client)),
        search=len(needed & (ours | client | found)),
        unseen=len(compaction.unseen),
        unseen_client=len(compaction.unseen & client),
        unseen_both=len(compaction.unseen & (ours | client)),
        edits=len(compaction.old_lines),
        ready=sum(old <= lines for old in compaction.old_lines),
        tokens=tokens_of_text(text),
    )


async def _record(stash: Stash, compaction: Compaction) -> None:
    """Record the session up to its compaction, as it is read from a client's transcript."""
    transcript = TranscriptSession(SESSION, "openai-chat", model=MODEL)
    messages = [
        TranscriptMessage(message.native, key=str(message.index), covers_before=message.is_summary)
        for message in (*compaction.before, compaction.summary)
    ]
    await stash.record_transcript(transcript, messages, Cursor(source=SESSION))


async def _found(stash: Stash, compaction: Compaction) -> frozenset[str]:
    """The facts that one search with the agent's next words finds."""
    query = first_query(compaction.after)
    if not query:
        return frozenset()
    result = await stash.search_history(query, session_id=SESSION, limit=MAX_HITS)
    found = [facts_of(hit.snippet) for hit in result.hits]
    found += [compaction.before[hit.seq].facts for hit in result.hits if hit.handle and hit.seq is not None]
    return frozenset[str]().union(*found)


def main() -> None:
    """Print a line for each length of a hand-off."""
    parser = argparse.ArgumentParser(prog="python -m bench.fidelity.handoffs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=lambda text: [int(part) for part in text.split(",")], default=[2_500, 5_000])
    arguments = parser.parse_args()
    compactions = [each for session in read_sessions(arguments.folder) for each in compactions_of(session)]
    print(f"{arguments.folder.name}: {len(compactions)} compactions; % of the facts needed next, and of the next edits")
    for max_tokens in arguments.tokens:
        total = sum((asyncio.run(measure(each, max_tokens)) for each in compactions), Counter[str]())
        shares = {name: 100 * total[name] / max(1, total["needed"]) for name in ("client", "ours", "both", "search")}
        told = ", ".join(f"{name} {share:.1f}" for name, share in shares.items())
        written = max(1, total["unseen"])
        told += f"; of {total['unseen']} that nothing had shown again: client"
        told += f" {100 * total['unseen_client'] / written:.1f}, both {100 * total['unseen_both'] / written:.1f}"
        ready = 100 * total["ready"] / max(1, total["edits"])
        print(f"  {total['tokens'] / max(1, len(compactions)):.0f} tokens: {told}; edits {ready:.1f}", flush=True)


if __name__ == "__main__":
    main()
