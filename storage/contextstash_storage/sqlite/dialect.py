"""SQLite's dialect: the names and texts that the steps on rows use here, and the driver that runs them."""

from __future__ import annotations

from functools import lru_cache

from contextstash_storage.sql.steps import Dialect
from contextstash_storage.sqlite.output_rows import OUTPUT_COLUMNS, TOKENS, TOOL
from contextstash_storage.sqlite.rows import IS_SEEN, TIME_TEXT

# Fields of a call that have their default value are not stored.
_CALL_FIELDS = (
    "model", "purpose", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens",
    "cache_write_1h_tokens", "cost",
)  # fmt: skip

DIALECT: Dialect = {
    "key": "session",
    "keys": "?",
    "of": "session = ?",
    "number": "session",
    "last": "session",
    "is_not": "IS NOT",
    "seen": IS_SEEN,
    # A session without messages stands where its last change puts it.
    "last_message": (
        f"coalesce((SELECT {TIME_TEXT} FROM messages WHERE messages.session = sessions.session"
        " ORDER BY seq DESC LIMIT 1), updated_at)"
    ),
    "messages": "counters ->> '$.messages'",
    "appended": "counters ->> '$.appended'",
    "outputs": "outputs JOIN sessions USING (session)",
    "tool": TOOL,
    "tokens": TOKENS,
    "output": OUTPUT_COLUMNS,
    "sha256": "CASE WHEN outputs.record = '' THEN lower(hex(outputs.sha256)) ELSE outputs.record ->> '$.sha256' END",
    "lock": "",
    "covers": """(instr(record, '"summary"') OR instr(record, '"undoes"'))""",
    "piece": ", place",
    "number_of_piece": ", ?3",  # its first position, which no other piece of the batch has
    "summary_id": "json_extract(edits.record, '$.summary_id')",
    "call_day": "substr(record ->> '$.created_at', 1, 10)",
    **{f"call_{name}": f"record ->> '$.{name}'" for name in _CALL_FIELDS},
}


@lru_cache(maxsize=256)
def spoken(text: str) -> str:
    """A statement with the names that are used here."""
    return text.format_map(DIALECT)
