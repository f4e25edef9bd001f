"""Full-text search in PostgreSQL: the terms, weights and order of the embedded store, scored by BM25 as there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from contextstash_storage.codec.record_json import blocks_of
from contextstash_storage.codec.segments import Stored, unpacked
from contextstash_storage.errors import StoreError
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import run
from contextstash_storage.postgres.search_index import kind_word, owner_mark, plain_words, session_mark, tool_word
from contextstash_storage.records import Role, SearchHit
from contextstash_storage.search.call_pairs import call_of_pair
from contextstash_storage.search.documents import Document, Kind, storable
from contextstash_storage.search.query_terms import SearchFilter, terms
from contextstash_storage.search.ranking import (
    CALL_CHARACTERS,
    CALL_WEIGHT,
    MATCHES,
    MORE_MATCHES,
    RANKED_HITS,
    READ_TOGETHER,
    WHOLE_WEIGHT,
    BestHits,
    Match,
    PairedOutput,
    Ranked,
    ranked,
    ranked_matches,
    rarity,
    text_weight,
)
from contextstash_storage.search.searchable import Searchable
from contextstash_storage.sql.bodies import segments_at
from contextstash_storage.sql.steps import Key
from contextstash_storage.store import Weigh

COMMON_ENTRIES = 2_000
"""A term in more entries than this says little: it only adds to the score of what other terms find. Each entry takes
some 5 µs to score."""

MAX_CANDIDATES = 20_000
"""How many entries are scored at most, if all terms are common."""

MIN_PART = 3
"""Letters of a part of a name: pg_trgm indexes groups of three."""

PART_SCORE = 0.1
"""The score of a hit that has only a part of a name: below that of any word."""

K1, B = 1.2, 0.75
"""The constants of BM25 in SQLite."""

_WEIGHTS = f"{{{1 / CALL_WEIGHT}, {1 / CALL_WEIGHT}, {1 / CALL_WEIGHT}, 1.0}}"
"""Of the words of texts (D) and of calls (A). `ts_rank_cd` of one term is the sum of the weights where it stands: with
CALL_WEIGHT before it, how often the term occurs, weighted as in SQLite."""

_PLANS = "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off"
"""As if vectors cost nothing to read, PostgreSQL would read them all. What an index has in order must not be read by
another one and sorted."""

_COUNTS = """
SELECT term::text, (
    SELECT count(*) FROM (
        SELECT FROM search_entries WHERE vector @@ ($1::tsquery && replace(term::text, '<->', '&')::tsquery) LIMIT $3
    ) AS counted
)
FROM (SELECT DISTINCT phraseto_tsquery('contextstash', words) AS term FROM unnest($2::text[]) AS words) AS terms
WHERE numnode(term) > 0
"""

# The mark of the owner is in each query, so that the index of words is used alone: with a condition on the column,
# PostgreSQL reads all entries of the owner by the primary key, as long as it has no statistics that say better.
# `setweight` of no words at all returns the vector as it is: taken out of its table's storage once, not for each term.
# `OFFSET 0` has the frequency computed once, and nothing sorted by vectors, which takes longer than all the rest.
_MATCHES = f"""
WITH found AS MATERIALIZED (
    SELECT session_id, seq, block, piece, message, kind, pair, words,
        score * CASE WHEN terms = $6 THEN {WHOLE_WEIGHT} ELSE 1 END AS score
    FROM (
        SELECT owner, session_id, seq, block, piece, message, kind, pair, words,
            setweight(vector, 'D', '{{}}'::text[]) AS vector
        FROM search_entries WHERE vector @@ $2::tsquery LIMIT {MAX_CANDIDATES} OFFSET 0
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT count(*) AS terms,
            sum(weight * tf * {K1 + 1} / (tf + {K1} * ({1 - B} + {B} * words / $5::float8))) AS score
        FROM (
            SELECT weight, {CALL_WEIGHT} * ts_rank_cd('{_WEIGHTS}', vector, query) AS tf
            FROM unnest($3::text[]::tsquery[], $4::float8[]) AS term (query, weight) WHERE vector @@ query OFFSET 0
        ) AS frequency
    ) AS scored
    WHERE owner = $1 ORDER BY score DESC, message DESC LIMIT $7
)
SELECT found.*, CREATED FROM found MESSAGE ORDER BY score DESC, message DESC
"""

# Each row is looked up by LATERAL, which keeps the order of the joins, in the order of the index that finds it: without
# statistics PostgreSQL takes all indexes for equally good, and would read the session's outputs for each pair.
_OUTPUTS = """
SELECT entry.pair, entry.message, wanted.session_id, entry.seq, entry.block, tool, argument, characters, CREATED
FROM unnest($2::text[], $3::bigint[]) AS wanted (session_id, pair)
CROSS JOIN LATERAL (
    SELECT seq, block, message, e.pair FROM search_entries AS e
    WHERE e.owner = $1 AND e.session_id = wanted.session_id AND e.pair BETWEEN wanted.pair AND wanted.pair
    AND kind = $4 AND piece = 0 ORDER BY e.pair OFFSET 0
) AS entry
CROSS JOIN LATERAL (
    SELECT seq, block, tool, argument, characters FROM outputs AS o
    WHERE o.owner = $1 AND o.session_id = wanted.session_id AND (o.seq, o.block) >= (entry.seq, entry.block)
    ORDER BY o.seq, o.block LIMIT 1
) AS output MESSAGE
WHERE (output.seq, output.block) = (entry.seq, entry.block)
"""


def _with_time(statement: str, where: SearchFilter, session: str, entry: str) -> str:
    """A statement that reads the time of each match if that decides what is found: there are hundreds of matches. The
    tables with these names have the session and the position of a match."""
    if where.any_time:
        return statement.replace("CREATED", "'' AS created_at").replace("MESSAGE", "")
    message = (
        "CROSS JOIN LATERAL (SELECT created_at FROM messages AS m WHERE m.owner = $1"
        f" AND m.session_id = {session}.session_id AND m.seq = {entry}.seq OFFSET 0) AS said"
    )
    return statement.replace("CREATED", "created_at").replace("MESSAGE", message)


_WITH_PART = """
SELECT pair, message, part.session_id, part.seq, part.block, 0 AS piece, created_at FROM (
    SELECT session_id, seq, block FROM outputs WHERE owner = $1 AND argument ILIKE $2
    AND ($4::text[] IS NULL OR session_id = ANY($4)) AND ($5::text IS NULL OR tool = $5) OFFSET 0
) AS part
CROSS JOIN LATERAL (
    SELECT pair, message FROM search_entries AS e
    WHERE e.owner = $1 AND e.session_id = part.session_id AND (e.seq, e.block, e.piece) >= (part.seq, part.block, 0)
    AND (e.seq, e.block, e.piece) <= (part.seq, part.block, 0) AND e.kind = $3
    ORDER BY e.seq, e.block, e.piece OFFSET 0
) AS entry
CROSS JOIN LATERAL (
    SELECT created_at FROM messages AS m
    WHERE m.owner = $1 AND m.session_id = part.session_id AND m.seq = part.seq OFFSET 0
) AS said
ORDER BY message DESC LIMIT $6
"""

_CALLS = """
SELECT wanted.session_id, seq FROM unnest($2::text[], $3::bigint[]) AS wanted (session_id, pair)
CROSS JOIN LATERAL (
    SELECT seq FROM search_entries AS e
    WHERE e.owner = $1 AND e.session_id = wanted.session_id AND e.pair BETWEEN wanted.pair AND wanted.pair
    AND kind = $4 AND piece = 0 ORDER BY e.pair OFFSET 0
) AS entry
"""

_STORED = """
SELECT wanted.session_id, wanted.seq, message, role, created_at, derived
FROM unnest($2::text[], $3::bigint[]) AS wanted (session_id, seq)
CROSS JOIN LATERAL (
    SELECT message, role, created_at, derived FROM messages AS m
    WHERE owner = $1 AND m.session_id = wanted.session_id AND m.seq = wanted.seq OFFSET 0
) AS message
"""

_OUTPUTS_AT = """
SELECT wanted.session_id, wanted.seq, block, handle, tool, argument
FROM unnest($2::text[], $3::bigint[]) AS wanted (session_id, seq)
CROSS JOIN LATERAL (
    SELECT block, handle, tool, argument FROM outputs AS o
    WHERE owner = $1 AND o.session_id = wanted.session_id AND o.seq BETWEEN wanted.seq AND wanted.seq
    ORDER BY o.seq, o.block OFFSET 0
) AS output
"""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where is searched: `place` is what every entry there has. There are `entries` of them, each of `words` words."""

    place: str
    entries: int
    words: float


async def search(
    db: Connection, owner: str, query: str, where: SearchFilter, limit: int, weigh: Weigh | None = None
) -> list[SearchHit]:
    """The best hits for any of the query's terms, see SessionStore.search."""
    wanted = terms(query)
    if not wanted or limit <= 0:
        return []
    await db.execute(_PLANS)
    scope = await _scope(db, owner, where)
    if scope is None:
        return []
    reader = _Reader(db, owner, wanted)
    found = await _terms(db, wanted, scope)
    if not any(count for _, count in found):
        considered = limit if weigh is None else RANKED_HITS * limit
        return await reader.hits(await _with_part(db, owner, query, where, considered, reader), limit, weigh)
    hits: list[SearchHit] = []
    for most in (ranked_matches(limit), MORE_MATCHES):
        matches, all_read = await _matches(db, owner, found, scope, where, most, reader)
        hits = await reader.hits(await _ranked(db, owner, matches, where, reader), limit, weigh)
        if len(hits) >= limit or all_read:
            break
    return hits


async def _scope(db: Connection, owner: str, where: SearchFilter) -> Scope | None:
    """Where is searched; None if nothing is there."""
    rows = await db.fetch(
        "SELECT session_id, indexed_entries, indexed_words FROM sessions WHERE owner = $1 AND indexed_entries > 0"
        " AND ($2::text[] IS NULL OR session_id = ANY($2))",
        owner,
        None if where.session_ids is None else list(where.session_ids),
    )
    if not rows:
        return None
    marks = [[owner_mark(owner)]]
    if where.session_ids is not None:
        marks.append([session_mark((owner, row[0])) for row in rows])
    if kinds := where.kinds:
        marks.append([kind_word(kind) for kind in kinds])
    if where.tool is not None:
        marks.append([tool_word(where.tool)])
    entries = sum(row[1] for row in rows)
    place = " & ".join("(" + " | ".join(f"'{mark}'" for mark in some) + ")" for some in marks)
    return Scope(place, entries, max(1.0, sum(row[2] for row in rows) / entries))


async def _terms(db: Connection, wanted: Sequence[str], scope: Scope) -> list[tuple[str, int]]:
    """The terms as PostgreSQL reads them, with the number of entries that have each (at most COMMON_ENTRIES)."""
    words = [plain_words(term) for term in wanted]
    rows = await db.fetch(_COUNTS, scope.place, words, COMMON_ENTRIES)
    return [(term, count) for term, count in rows]


async def _matches(
    db: Connection,
    owner: str,
    found: Sequence[tuple[str, int]],
    scope: Scope,
    where: SearchFilter,
    most: int,
    reader: _Reader,
) -> tuple[list[Match], bool]:
    """The best matches, and whether these are all."""
    rare = [term for term, count in found if 0 < count < COMMON_ENTRIES]
    telling = rare or [term for term, count in found if count]
    if not telling:
        return [], True
    any_of = f"({scope.place}) & ({' | '.join(f'({term})' for term in telling)})"
    rows = await db.fetch(
        _with_time(_MATCHES, where, "found", "found"),
        owner,
        any_of,
        [term for term, _ in found],
        [rarity(count, scope.entries) for _, count in found],
        scope.words,
        len(found) if len(found) > 1 else 0,
        most,
    )
    reader.number_sessions([(row["session_id"], row["message"]) for row in rows])
    return [
        Match(
            row["message"],
            reader.numbers[row["session_id"]],
            row["seq"],
            row["block"],
            row["piece"],
            Kind(row["kind"]),
            row["pair"],
            row["score"],
            row["words"],
        )
        for row in rows
        if where.admits(row["created_at"])
    ], len(rows) < most


async def _with_part(
    db: Connection, owner: str, query: str, where: SearchFilter, limit: int, reader: _Reader
) -> list[Ranked]:
    """The outputs of calls whose main argument has the query in it, the newest first: no word of the index is equal to
    a part of a name or a path."""
    part = query.strip()
    if where.scope == "messages" or len(part) < MIN_PART:
        return []
    escaped = storable(part).replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    sessions = None if where.session_ids is None else list(where.session_ids)
    values = (f"%{escaped}%", Kind.OUTPUT.value, sessions, where.tool, MATCHES)
    rows = [row for row in await db.fetch(_WITH_PART, owner, *values) if where.admits(row["created_at"])]
    reader.number_sessions([(row["session_id"], row["message"]) for row in rows])
    return [
        Ranked(
            row["message"],
            reader.numbers[row["session_id"]],
            row["seq"],
            row["block"],
            0,
            Kind.OUTPUT,
            PART_SCORE,
            row["pair"],
        )
        for row in rows[: 2 * limit]
    ]


async def _ranked(
    db: Connection, owner: str, matches: Sequence[Match], where: SearchFilter, reader: _Reader
) -> list[Ranked]:
    if where.scope == "messages":
        return ranked(matches, ())
    pairs = {(reader.sessions[match.session], match.pair) for match in matches if match.pair is not None}
    rows = await db.fetch(
        _with_time(_OUTPUTS, where, "wanted", "entry"),
        owner,
        [session for session, _ in pairs],
        [pair for _, pair in pairs],
        Kind.OUTPUT.value,
    )
    outputs = [
        PairedOutput(pair, message, reader.numbers[session], seq, block, tool, argument, characters)
        for pair, message, session, seq, block, tool, argument, characters, created in rows
        if where.admits(created)
    ]
    found = ranked(matches, outputs, text_weight(reader.wanted))
    return [hit for hit in found if hit.kind is not Kind.CALL] if where.scope == "outputs" else found


class _Reader:
    """Reads what hits show. Sessions are numbered for the ranking, which prefers the newest: by their messages."""

    def __init__(self, db: Connection, owner: str, wanted: Sequence[str]) -> None:
        self._db = db
        self._owner = owner
        self.wanted = wanted
        self.numbers: dict[str, int] = {}
        self.sessions: dict[int, str] = {}

    def number_sessions(self, places: Sequence[tuple[str, int]]) -> None:
        first: dict[str, int] = {}
        for session, message in places:
            first[session] = min(message, first.get(session, message))
        order = sorted(first, key=lambda session: first[session])
        self.numbers = {session: number for number, session in enumerate(order)}
        self.sessions = dict(enumerate(order))

    async def hits(self, found: Sequence[Ranked], limit: int, weigh: Weigh | None) -> list[SearchHit]:
        """The best hits, without outputs whose lines are in better ones. A text is read only if its hit, or one behind
        it, can be among the best."""
        by_name = None if weigh is None else lambda hit: weigh(self.sessions[hit.session], hit.seq)
        best: BestHits[tuple[dict[int, _Stored], str]] = BestHits(found, limit, by_name, self.wanted)
        stored: dict[int, _Stored] = {}
        for place, hit in enumerate(found):
            if place % READ_TOGETHER == 0:
                stored = await self._stored(found[place : place + READ_TOGETHER])
            text = stored[hit.message].shown_piece(hit)
            if best.add(text, (stored, text)):
                break
        return [self._hit(stored, hit, text) for hit, (stored, text) in best.best()]

    def _hit(self, stored: dict[int, _Stored], hit: Ranked, text: str) -> SearchHit:
        own = stored[hit.message]
        handle, tool, argument = own.outputs.get(hit.block, (None, None, None))
        heading = ""
        if hit.kind is Kind.OUTPUT:
            message, block = call_of_pair(hit.call) if hit.call is not None else (-1, 0)
            called = stored[message].document(block) if message in stored else None
            heading = f"{tool} {argument or ''}".strip() if called is None else called.text[:CALL_CHARACTERS]
        return SearchHit(
            session_id=self.sessions[hit.session],
            seq=hit.seq,
            role=own.role,
            handles=() if handle is None else (handle,),
            tool=tool,
            text="\n".join(part for part in (heading, text) if part),
            score=hit.score,
            created_at=datetime.fromisoformat(own.created_at),
        )

    async def _stored(self, found: Sequence[Ranked]) -> dict[int, _Stored]:
        """The messages of hits and of their calls, by number."""
        places = {(self.sessions[hit.session], hit.seq) for hit in found}
        calls = [(self.sessions[hit.session], hit.call) for hit in found if hit.call is not None]
        if calls:
            rows = await self._db.fetch(_CALLS, self._owner, *zip(*calls, strict=True), Kind.CALL.value)
            places.update((session, seq) for session, seq in rows)
        return await _read_stored(self._db, self._owner, sorted(places))


async def _read_stored(db: Connection, owner: str, places: Sequence[tuple[str, int]]) -> dict[int, _Stored]:
    """The messages at these positions of sessions, by number."""
    if not places:
        return {}
    columns = (owner, [session for session, _ in places], [seq for _, seq in places])
    outputs: dict[tuple[str, int], _Outputs] = {}
    for session, seq, block, handle, tool, argument in await db.fetch(_OUTPUTS_AT, *columns):
        outputs.setdefault((session, seq), {})[block] = (handle, tool, argument)
    seqs: dict[str, list[int]] = {}
    for session, seq in places:
        seqs.setdefault(session, []).append(seq)
    contents = {session: await _contents(db, (owner, session), its) for session, its in seqs.items()}
    return {
        message: _Stored(
            role,
            created,
            outputs.get((session, seq), {}),
            _searchable(derived, outputs.get((session, seq), {}), contents[session].get(seq)),
        )
        for session, seq, message, role, created, derived in await db.fetch(_STORED, *columns)
    }


async def _contents(db: Connection, key: Key, seqs: Sequence[int]) -> dict[int, Stored]:
    """What is stored of the messages at these positions of a session that can be read."""
    found: dict[int, Stored] = {}
    wanted = set(seqs)
    for row in await run(db, segments_at(key, seqs)):
        with suppress(StoreError):
            found.update(unpacked(key, *row, wanted))
    return found


_Outputs = dict[int, tuple[str, str, str]]
"""Handle, tool and main argument of a message's outputs by block."""


def _searchable(derived: str, outputs: _Outputs, stored: Stored | None) -> Searchable | None:
    if stored is None or stored.text is None:
        return None
    calls = {block: (tool, argument) for block, (_, tool, argument) in outputs.items()}
    return Searchable(blocks_of(derived), calls, stored)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A message as a hit shows it."""

    role: Role
    created_at: str
    outputs: _Outputs
    text: Searchable | None

    def document(self, block: int) -> Document | None:
        """The text that is indexed of a block."""
        return None if self.text is None else self.text.document(block)

    def shown_piece(self, hit: Ranked) -> str:
        """The text of the piece that matches best."""
        return "" if self.text is None else self.text.shown_piece(hit.block, hit.piece)
