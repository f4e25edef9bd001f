"""Full-text search: no character of a query can break it. The same for both databases, whose match.py finds the
entries that have the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from contextstash_storage.records import SearchHit
from contextstash_storage.rows import fields_of, parsed
from contextstash_storage.search.documents import Document, Kind, pieces, tool_mark
from contextstash_storage.search.index import call_of_pair, read_documents
from contextstash_storage.search.query_terms import SearchFilter, terms
from contextstash_storage.search.ranking import (
    CALL_CHARACTERS,
    READ_TOGETHER,
    WHOLE_WEIGHT,
    Match,
    PairedOutput,
    best_hits,
    ranked,
    ranked_matches,
    text_weight,
)
from contextstash_storage.sessions import DELETED_OWNER, named
from contextstash_storage.transaction import Found, Place, Tx, listed, only, text_of, time_of

Weigh = Callable[[str, int], float]
"""`weigh(session_id, seq)`: by what the score of a search's hit is multiplied, at most 1. Pure."""


def search(
    tx: Tx, owner: str, query: str, where: SearchFilter, limit: int, weigh: Weigh | None = None
) -> list[SearchHit]:
    """The best hits for any of the query's terms, see SessionStore.search."""
    wanted = terms(query)
    place = _place_of(tx, owner, where)
    if not wanted or place is None or limit <= 0:
        return []
    ranks = ranked_matches(limit)
    matches: list[Match] = []
    for found in tx.index.attempts(tx, place, wanted, ranks):
        matches = _matches(tx, found, ranks, where, place)
        if len(matches) >= ranks or found.is_complete:
            break
    hits = _ranked(tx, matches, where, wanted)
    names = {} if weigh is None else named(tx, {hit.session for hit in hits})
    by_hit = None if weigh is None else lambda hit: weigh(names[hit.session], hit.seq)
    return [_hit(tx, hit, text) for hit, text in best_hits(hits, _texts(tx, hits), limit, by_hit, wanted)]


_OTHERS = """
SELECT EXISTS (SELECT 1 FROM sessions WHERE owner < ? AND owner <> ?)
    OR EXISTS (SELECT 1 FROM sessions WHERE owner > ? AND owner <> ?)
"""


def _place_of(tx: Tx, owner: str, where: SearchFilter) -> Place | None:
    """Where a query searches; None if there are no such sessions."""
    shared = bool(only(tx.rows(_OTHERS, (owner, DELETED_OWNER) * 2)))
    rows: list[tuple[int, str]] = []
    if where.session_ids is not None:
        text = f"SELECT session, counters FROM sessions WHERE owner = ? AND session_id IN {tx.texts}"
        rows = tx.rows(text, (owner, listed(where.session_ids)))
        if not rows:
            return None
    elif shared:
        rows = tx.rows("SELECT session, counters FROM sessions WHERE owner = ?", (owner,))
    messages = sum(parsed(counters).get("messages", 0) for _, counters in rows)
    newest = only(tx.rows("SELECT max(message) FROM messages"))
    return Place(
        owner,
        None if where.session_ids is None else tuple(session for session, _ in rows),
        () if where.tool is None else (tool_mark(where.tool),),
        where.kinds,
        messages,
        shared,
        messages / max(1, newest or 0),
    )


def _matches(tx: Tx, found: Found, ranks: int, where: SearchFilter, place: Place) -> list[Match]:
    """The best rows that are searched, at most so many, in order; those with all terms before others."""
    scores = {**found.scores, **{entry: WHOLE_WEIGHT * found.scores[entry] for entry in found.having_all}}
    entries = sorted(scores, key=lambda entry: (-scores[entry], -entry))
    matches: list[Match] = []
    for first in range(0, len(entries), ranks):
        if len(matches) >= ranks:
            break
        matches += _read(tx, entries[first : first + ranks], scores, where, place)
    return matches[:ranks]


_ENTRIES = (
    "SELECT entry, message, session, seq, block, piece, kind, pair, call_words, messages.created_at, owner"
    " FROM entries JOIN messages USING (message) JOIN sessions USING (session) WHERE entry IN "
)


def _read(
    tx: Tx, entries: Sequence[int], scores: Mapping[int, float], where: SearchFilter, place: Place
) -> list[Match]:
    """Those of these entries that are searched, in the same order."""
    rows = tx.rows(_ENTRIES + tx.numbers, (listed(sorted(entries)),))
    found = {
        entry: Match(message, session, seq, block, piece, Kind(kind), pair, scores[entry], words)
        for entry, message, session, seq, block, piece, kind, pair, words, created, owner in rows
        if place.holds(session, owner, kind) and where.admits(created)
    }
    return [found[entry] for entry in entries if entry in found]


def _ranked(tx: Tx, matches: Sequence[Match], where: SearchFilter, wanted: Sequence[str]) -> list[Match]:
    if where.scope == "messages":
        return ranked(matches, ())
    found = ranked(matches, _outputs(tx, matches, where), text_weight(wanted))
    return [hit for hit in found if hit.kind is not Kind.CALL] if where.scope == "outputs" else found


_OUTPUT = "messages.session, messages.seq, outputs.block, tool, argument, characters, messages.created_at"

_OUTPUTS_OF_CALLS = (
    f"SELECT pair, message, {_OUTPUT} FROM entries JOIN messages USING (message) JOIN outputs"
    " ON outputs.session = messages.session AND outputs.seq = messages.seq AND outputs.block = entries.block"
    f" WHERE kind = {Kind.OUTPUT.value} AND piece = 0 AND pair IN "
)

_OUTPUTS_OF_MESSAGES = (
    f"SELECT 0, message, {_OUTPUT} FROM messages JOIN outputs"
    " ON outputs.session = messages.session AND outputs.seq = messages.seq WHERE message IN "
)


def _outputs(tx: Tx, matches: Sequence[Match], where: SearchFilter) -> list[PairedOutput]:
    """The outputs that match, and all outputs of calls that match."""
    calls = {match.pair for match in matches if match.kind is Kind.CALL}
    others = {
        (match.message, match.block): match.pair or 0
        for match in matches
        if match.kind is Kind.OUTPUT and match.pair not in calls
    }
    found = []
    for pair, message, session, seq, block, tool, argument, characters, created in [
        *tx.rows(_OUTPUTS_OF_CALLS + tx.numbers, (listed(sorted(calls)),)),  # type: ignore[type-var]
        *tx.rows(_OUTPUTS_OF_MESSAGES + tx.numbers, (listed(sorted({message for message, _ in others})),)),
    ]:
        own = pair or others.get((message, block))
        if own is not None and where.admits(created):
            place = (message, session, seq, block)
            found.append(PairedOutput(own, *place, text_of(tool), text_of(argument), characters))
    return found


def _texts(tx: Tx, found: Sequence[Match]) -> Iterator[str]:
    """The text of each hit: that of its piece."""
    for first in range(0, len(found), READ_TOGETHER):
        some = found[first : first + READ_TOGETHER]
        read = read_documents(tx, [hit.message for hit in some])
        for hit in some:
            document = _of_block(read, hit.message, hit.block)
            cut = [] if document is None else pieces(document)
            yield cut[min(hit.piece, len(cut) - 1)].text if cut else ""


def _of_block(read: Mapping[int, Sequence[Document]], message: int, block: int) -> Document | None:
    return next((each for each in read.get(message, ()) if each.block == block), None)


def _hit(tx: Tx, hit: Match, text: str) -> SearchHit:
    [(session_id, facts, created)] = tx.rows(
        "SELECT session_id, facts, messages.created_at FROM messages JOIN sessions USING (session) WHERE message = ?",
        (hit.message,),
    )
    outputs = tx.rows(
        "SELECT handle, tool, argument FROM outputs WHERE session = ? AND seq = ? AND block = ?",
        (hit.session, hit.seq, hit.block),
    )
    handle, tool, argument = outputs[0] if outputs else (None, None, None)
    heading = _heading(tx, hit, text_of(tool or ""), text_of(argument or ""))
    return SearchHit(
        session_id=session_id,
        seq=hit.seq,
        role=fields_of(facts)["role"],
        handles=() if handle is None else (handle,),
        tool=None if tool is None else text_of(tool),
        text="\n".join(part for part in (heading, text) if part),
        score=hit.score,
        created_at=time_of(created),
    )


def _heading(tx: Tx, hit: Match, tool: str, argument: str) -> str:
    """The call that an output is of, whole if it matches."""
    if hit.kind is not Kind.OUTPUT:
        return ""
    document = None
    if hit.call is not None:
        message, block = call_of_pair(hit.call)
        document = _of_block(read_documents(tx, [message]), message, block)
    return f"{tool} {argument}".strip() if document is None else document.text[:CALL_CHARACTERS]
