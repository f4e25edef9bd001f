"""The edits of a view: a placeholder or a part of an output, a summary, a message that is added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash.outputs.limits import OutputLimits, limit
from contextstash.outputs.placeholders import filled_placeholder, placeholder
from contextstash.safety.sanitize import MARKER, counted, one_line, unforged
from contextstash.view.ladder import cuts_of
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.view.view import Entry
from contextstash.window.settings import DESCRIBED
from contextstash_storage.records import ArchiveEdit, DigestEdit, Output, SummaryEdit, TruncateEdit, handle_of

PINNED_SHARE = 4
"""Pinned outputs behind summaries take at most the usable window divided by this; beyond, each is cut. With
the summaries they leave more than half of the window to the work."""


def placeholder_of(snapshot: SessionSnapshot, output: Output, digest: str) -> str:
    """The placeholder of an output, in the words that the settings choose."""
    if snapshot.settings.placeholder == DESCRIBED:
        return placeholder(output, digest, snapshot.changed_since(output))
    return filled_placeholder(snapshot.settings.placeholder, output)


def archive_edit(snapshot: SessionSnapshot, output: Output, shown: str) -> ArchiveEdit:
    """The edit that shows an output as a placeholder."""
    return ArchiveEdit(**_replacing(snapshot, output, shown))


def truncate_edit(snapshot: SessionSnapshot, output: Output, text: str, limits: OutputLimits) -> TruncateEdit:
    """The edit that cuts an output to limits."""
    shown = limit(text, limits, snapshot.counter.count_result, output.handle)
    return TruncateEdit(**_replacing(snapshot, output, shown))


def _replacing(snapshot: SessionSnapshot, output: Output, shown: str) -> dict[str, Any]:
    """The fields of an edit that shows a text instead of an output. What the provider counts for the result and the
    message around it stays."""
    tokens = snapshot.counter.count_result(shown) + snapshot.counter.result_overhead
    tokens += snapshot.settings.message_overhead if output.block == 0 else 0
    return {"seq": output.seq, "block": output.block, "handle": output.handle, "text": shown, "tokens": tokens}


def summary_id(first_seq: int, last_seq: int, text: str) -> str:
    """The short id of a summary, derived from what it covers and from its text."""
    return handle_of("sum", f"{first_seq}\0{last_seq}\0{text}")


def summary_edit(
    snapshot: SessionSnapshot,
    text: str,
    first_seq: int,
    last_seq: int,
    *,
    strategy: str,
    pinned: str = "",
    files: str = "",
) -> SummaryEdit:
    """The edit that shows `first_seq` to `last_seq` as this text, after it the texts of `files`, and then the `pinned`
    outputs among them."""
    marker = snapshot.settings.summary_marker
    if marker is None:
        later = any(entry.summary and entry.last_seq < first_seq for entry in snapshot.entries)
        shown = summary_text(text, first_seq, last_seq, later=later)
    else:
        shown = f"{marker}\n{unforged(text)}"
    if files:
        shown = f"{shown}\n\n{files}"
    if pinned:
        shown = f"{shown}\n\n{pinned}"
    return SummaryEdit(
        first_seq=first_seq,
        last_seq=last_seq,
        summary_id=summary_id(first_seq, last_seq, text),
        strategy=strategy,
        text=shown,
        summary=text,
        tokens=snapshot.counter.count(shown) + snapshot.settings.message_overhead,
    )


def summary_text(text: str, first_seq: int, last_seq: int, *, later: bool = False) -> str:
    """A summary as the view shows it: what it replaces, and how to retrieve the originals.

    It covers messages `first_seq` to `last_seq`. With `later`, another summary stays before it. The text of a summary
    was true when it was written, and is not written again: it says up to when.
    """
    older = " What a summary above says is open, failed or the last state is out of date." if later else ""
    count = counted(last_seq - first_seq + 1, "earlier message")
    return (
        f"{MARKER} summary: this replaces {count} ({first_seq} to {last_seq}) of this same session, whose"
        " work is done and need not be repeated. The originals are kept: search_history finds them, get_archived_output"
        f" reads tool outputs by handle. The state is as of message {last_seq}.{older}]\n\n{unforged(text)}"
    )


def last_anchor(entries: Sequence[Entry]) -> int | None:
    """The last position after which a digest message keeps the view valid. Not directly after a summary: there the
    digest would be among the covered messages, and be hidden with them."""
    places = [cut for cut in cuts_of(entries) if cut > 0 and entries[cut - 1].summary is None]
    return entries[places[-1] - 1].last_seq if places else None


def digest_edit(snapshot: SessionSnapshot, anchor: int, text: str, handles: tuple[str, ...]) -> DigestEdit:
    """The edit that adds this message after the position `anchor`."""
    tokens = snapshot.counter.count(text) + snapshot.settings.message_overhead
    return DigestEdit(after_seq=anchor, handles=handles, text=text, tokens=tokens)


def pinned_tokens(snapshot: SessionSnapshot) -> int:
    """About how many tokens of the view the pinned outputs take: at most their share of the window."""
    return min(sum(output.tokens for output in snapshot.pinned.values()), snapshot.budget.usable // PINNED_SHARE)


def pinned_text(snapshot: SessionSnapshot, texts: Sequence[tuple[Output, str]]) -> str:
    """The text that shows pinned outputs of messages that are not shown, each word for word between two lines that name
    it; empty if there are none. If all pinned outputs exceed their share of the window, each is cut to an equal
    part."""
    pinned, room = snapshot.pinned, snapshot.budget.usable // PINNED_SHARE
    whole = sum(output.tokens for output in pinned.values()) <= room
    limits = OutputLimits(tokens=room // max(1, len(pinned)), cut=snapshot.settings.output_cut)
    shown = []
    for output, text in texts:
        if not whole:
            text = limit(text, limits, snapshot.counter.count, output.handle)
        call = one_line(f"{output.tool} {output.argument}", 160)
        shown.append(
            f"{MARKER} pinned output {output.handle} of {call}, message {output.seq}:]\n{unforged(text)}\n"
            f"{MARKER} end of {output.handle}]"
        )
    return "\n\n".join(shown)
