"""The edits that shorten a view, and how each changes the counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from contextstash.outputs.limits import OutputLimits, limit
from contextstash.outputs.placeholders import filled_placeholder, placeholder
from contextstash.safety.sanitize import unforged
from contextstash.view.session_snapshot import SessionSnapshot
from contextstash.view.summary_text import summary_text
from contextstash.view.view import Entry, difference
from contextstash.window.settings import DESCRIBED
from contextstash_storage.handles import handle_of
from contextstash_storage.records import (
    ArchiveEdit,
    EditRecord,
    Output,
    Replacement,
    SummaryEdit,
    TruncateEdit,
)

Weighed = TypeVar("Weighed", bound=EditRecord)
AnyReplacement = TypeVar("AnyReplacement", bound=Replacement)


def placeholder_of(snapshot: SessionSnapshot, output: Output, digest: str) -> str:
    """The placeholder of an output, in the words that the settings choose."""
    if snapshot.settings.placeholder == DESCRIBED:
        return placeholder(output, digest, snapshot.changed_since(output))
    return filled_placeholder(snapshot.settings.placeholder, output, digest)


def archive_edit(snapshot: SessionSnapshot, output: Output, shown: str, counted: int | None = None) -> ArchiveEdit:
    """The edit that shows an output as a placeholder, which takes `counted` tokens. ReplacedBlocks
    adds the change of the counters."""
    return ArchiveEdit(**_replacing(snapshot, output, shown, counted))


def truncate_edit(snapshot: SessionSnapshot, output: Output, text: str, limits: OutputLimits) -> TruncateEdit:
    """The edit that cuts an output to limits. ReplacedBlocks adds the change of the counters."""
    shown = limit(text, limits, snapshot.counter.count_result, output.handle).text
    return TruncateEdit(**_replacing(snapshot, output, shown))


def _replacing(snapshot: SessionSnapshot, output: Output, shown: str, counted: int | None = None) -> dict[str, Any]:
    """The fields of an edit that shows a text instead of an output. What the provider counts for the result and the
    message around it stays."""
    tokens = snapshot.counter.count_result(shown) if counted is None else counted
    tokens += snapshot.counter.result_overhead + (snapshot.settings.message_overhead if output.block == 0 else 0)
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
    outputs among them. The caller adds the change of the counters."""
    marker = snapshot.settings.summary_marker
    if marker is None:
        later = any(entry.summary and entry.last_seq < first_seq for entry in snapshot.entries)
        shown = summary_text(text, first_seq, last_seq, last_seq - first_seq + 1, later=later)
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
        level="recent",
        text=shown,
        summary=text,
        tokens=snapshot.counter.count(shown) + snapshot.settings.message_overhead,
    )


class ReplacedBlocks:
    """The messages of a view whose blocks are replaced one after another, and the edits that do it. Each edit has its
    change of the counters."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._shown = {entry.first_seq: entry for entry in entries if entry.message}
        self.edits: list[Replacement] = []

    def entry(self, seq: int) -> Entry | None:
        """The message as it is now; None if the view does not show it."""
        return self._shown.get(seq)

    def result(self, seq: int, call_id: str) -> int | None:
        """The block with the result of a call in a message; None if it is not shown, or replaced already."""
        entry = self._shown.get(seq)
        blocks = enumerate(entry.message.blocks if entry is not None and entry.message is not None else ())
        found = next((at for at, block in blocks if block.type == "tool_result" and block.call_id == call_id), None)
        return None if entry is None or found in entry.replaced else found

    def shrinks(self, edit: Replacement) -> bool:
        """Whether the message becomes smaller by this edit."""
        return self._with(edit).tokens < self._shown[edit.seq].tokens

    def add(self, edit: AnyReplacement) -> AnyReplacement:
        """Replace a block; returns the edit with its change of the counters."""
        before, after = self._shown[edit.seq], self._with(edit)
        edit = _weighed(edit, before, after)
        self._shown[edit.seq] = after
        self.edits.append(edit)
        return edit

    def _with(self, edit: Replacement) -> Entry:
        before = self._shown[edit.seq]
        return replace(before, replaced={**before.replaced, edit.block: edit})


def _weighed(edit: Weighed, before: Entry, after: Entry) -> Weighed:
    return edit.model_copy(update=difference([before], [after]))
