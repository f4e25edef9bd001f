"""Tool outputs by their handles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash_storage.bodies import damaged
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.handles import HANDLE, MAX_NAMED, ambiguous
from contextstash_storage.records import Output
from contextstash_storage.transaction import MAX_INTEGER, Tx, held, listed, only, text_of

_NAMES = ("handle", "seq", "block", "tool", "argument", "tokens", "characters", "lines", "sha256", "is_error")
_COLUMNS = ", ".join(_NAMES)

SHA256_BYTES = 32


def store_outputs(tx: Tx, row: int, outputs: Sequence[Output]) -> None:
    """Store outputs at their positions, each under its handle, or under the next free one of that name."""
    wanted = {output.handle for output in outputs}
    found = (
        tx.rows(f"SELECT handle FROM outputs WHERE session = ? AND handle IN {tx.texts}", (row, listed(wanted)))
        if wanted
        else []
    )
    numbers = {name: _count(tx, row, name) for (name,) in found}
    rows = []
    for each in outputs:
        number = numbers[each.handle] = numbers.get(each.handle, 0) + 1
        handle = _numbered(each.handle, number)
        sizes = (each.tokens, each.characters, each.lines, _stored_hash(each.sha256), int(each.is_error))
        rows.append((row, handle, each.seq, each.block, held(each.tool), held(each.argument), *sizes))
    tx.many(f"INSERT INTO outputs (session, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _stored_hash(text: str) -> bytes:
    """A hash as it is stored: that of an imported session can be any text."""
    try:
        stored = bytes.fromhex(text)
    except ValueError:
        stored = b""
    if len(stored) == SHA256_BYTES and stored.hex() == text:
        return stored
    return b"?" * (SHA256_BYTES + 1) + text.encode("utf-8", "surrogatepass")


def _hash_of(stored: bytes) -> str:
    if len(stored) == SHA256_BYTES:
        return stored.hex()
    return stored[SHA256_BYTES + 1 :].decode("utf-8", "surrogatepass")


def _output(row: Sequence[Any]) -> Output:
    """The output of a row of _COLUMNS. Raises DamagedError if it is damaged."""
    fields = dict(zip(_NAMES, row, strict=True))
    try:
        names = {name: text_of(fields[name]) for name in ("tool", "argument")}
        return Output(**{**fields, **names, "sha256": _hash_of(fields["sha256"]), "is_error": bool(fields["is_error"])})
    except (TypeError, ValueError, AttributeError) as error:
        raise damaged(f"output {fields['handle']}") from error


def read_outputs(tx: Tx, row: int, *, first: int = 0, last: int | None = None) -> list[Output]:
    """The tool outputs of messages `first..last` of a session, both included, in order."""
    text = f"SELECT {_COLUMNS} FROM outputs WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq, block"
    return [_output(each) for each in tx.rows(text, (row, first, MAX_INTEGER if last is None else last))]


def find_output(tx: Tx, owner: str, handle: str, session_id: str | None = None) -> tuple[str, Output]:
    """The session and output of a handle, the newest session's if several hold the same text. Raises
    HandleNotFoundError, and BadInputError if several texts have this handle."""
    condition, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
    rows = tx.rows(
        "SELECT * FROM (SELECT session_id, row_number() OVER (PARTITION BY sha256 ORDER BY updated_at DESC) AS place,"
        f" {_COLUMNS} FROM outputs JOIN sessions USING (session) WHERE owner = ? AND handle = ?{condition}) AS meanings"
        f" WHERE place = 1 LIMIT {MAX_NAMED}",
        (owner, held(handle), *values),
    )
    if not rows:
        raise _no_handle(handle, session_id)
    found = [(each[0], _output(each[2:])) for each in rows]
    if len(found) > 1:
        raise BadInputError(ambiguous(handle, [(name, output.handle) for name, output in found]))
    return found[0]


def _no_handle(handle: str, session_id: str | None) -> HandleNotFoundError:
    what = f"There is no output '{handle}'{' in that session' * (session_id is not None)}."
    if not HANDLE.fullmatch(handle):
        what = f"'{handle}' is too short, or no handle."
    return HandleNotFoundError(
        f"{what} Handles look like out_k3f9x2abq7m4wz5d; search_history finds outputs and names theirs."
    )


def find_handles(tx: Tx, owner: str, prefix: str, limit: int) -> list[str]:
    """The handles that begin with `prefix`, in order."""
    rows = tx.rows(
        "SELECT DISTINCT handle FROM outputs JOIN sessions USING (session)"
        " WHERE owner = ? AND handle >= ? AND substr(handle, 1, ?) = ? ORDER BY handle LIMIT ?",
        (owner, prefix, len(prefix), prefix, limit),
    )
    return [handle for (handle,) in rows]


def _numbered(name: str, number: int) -> str:
    """The handle of the output that is the one of this number among those of one name."""
    return name if number == 1 else f"{name}-{number}"


def _count(tx: Tx, row: int, name: str) -> int:
    """How many outputs have this name, of which the first is there: that is the last number, as they are given in
    order."""
    text = "SELECT count(*) FROM outputs WHERE session = ? AND handle BETWEEN ? AND ?"
    return 1 + int(only(tx.rows(text, (row, f"{name}-", f"{name}-:"))))  # the colon comes behind the digits
