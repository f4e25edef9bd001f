"""One short line of text for each result; the structured content has everything that a model needs."""

from __future__ import annotations

from contextstash.context.text.before_and_after import before_and_after
from contextstash.service import results


def estimate(result: results.Estimate) -> str:
    return (
        f"{result.tokens:,} of {result.usable:,} usable tokens ({result.percent} %),"
        f" level {result.level}. {result.next_step}"
    )


def prune(result: results.PruneResult) -> str:
    if not result.tokens_saved:
        return result.reason
    return f"{result.reason} {before_and_after(result.tokens_before, result.tokens_after)} tokens.{_note(result.note)}"


def _note(note: str | None) -> str:
    return f" {note}" if note else ""


def compact(result: results.CompactResult) -> str:
    if not result.tokens_saved:
        return result.reason
    change = f"{before_and_after(result.tokens_before, result.tokens_after)} tokens"
    return f"{result.reason} {change}, written by {result.strategy}.{_note(result.note)}"


def summary(result: results.SummaryResult) -> str:
    covered = f"messages {result.first_seq} to {result.last_seq}"
    return f"Summary {result.summary_id} of {covered}, {result.tokens:,} tokens."


def output(result: results.OutputPage) -> str:
    more = f", continue at offset {result.next_offset}" if result.next_offset is not None else ""
    return f"{result.handle}: {result.total_lines:,} lines, {result.total_tokens:,} tokens in all{more}."


def search(result: results.SearchResult) -> str:
    return f"{len(result.hits)} hit{'s' * (len(result.hits) != 1)}."


def restore(result: results.RestoreResult) -> str:
    change = before_and_after(result.tokens_before, result.tokens_after)
    return f"{len(result.restored)} back in view, {change} tokens.{_note(result.note)}"


def record(result: results.RecordResult) -> str:
    notes = " ".join(("", *result.done, *filter(None, [result.note])))
    return (
        f"{result.recorded} recorded, {result.duplicates} known already, in session {result.session_id};"
        f" next_seq {result.next_seq}; {result.tokens:,} tokens, level {result.level}.{notes}"
    )


def context(result: results.ContextResult) -> str:
    left_out = f", {result.left_out.messages} messages left out" if result.left_out else ""
    return f"{len(result.messages)} messages, {result.tokens:,} of {result.budget:,} tokens{left_out}."


def recover(result: results.RecoverResult) -> str:
    return result.reason


def sessions(result: results.SessionList) -> str:
    more = f"; more after cursor {result.next_cursor}" if result.next_cursor else ""
    return f"{len(result.sessions)} session{'s' * (len(result.sessions) != 1)}{more}."


def configure(result: results.ConfigureResult) -> str:
    return f"Changed for session {result.session_id}: {', '.join(result.changed) or 'nothing'}."


def delete(result: results.DeleteResult) -> str:
    if not result.deleted:
        return f"There is no session {result.session_id}; nothing was deleted."
    note = f" {result.note}" if result.note else ""
    return f"Session {result.session_id} is deleted, {result.messages} messages with it.{note}"
