"""The history: each message as it was recorded with what the model sees instead, the summaries that it sees, pages of
outputs, and search over everything that was ever recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from contextstash.messages.base import Format
from contextstash.messages.detection import get_format
from contextstash.outputs.digest import without_reminders
from contextstash.outputs.limits import WHOLE
from contextstash.outputs.paging import page, snippet
from contextstash.record.output_archive import outputs_session_id
from contextstash.reduce.prune import MAX_TOOL
from contextstash.results import (
    Hit,
    MessageLine,
    MessagePage,
    OutputPage,
    SearchResult,
    ShownBlock,
    ShownSummary,
    SummaryResult,
)
from contextstash.safety.sanitize import defused, one_line
from contextstash.session.access import Access
from contextstash.session.masks import shown_excerpt, shown_text, shown_texts, shown_value
from contextstash.session.open_session import READ_AT_ONCE, Known, outputs_by_message
from contextstash.view.view import Entry, build_view, path_to
from contextstash.window.settings import ContextSettings
from contextstash_storage.errors import BadInputError, DamagedError, HandleNotFoundError, NotFoundError
from contextstash_storage.records import ArchiveEdit, Message, Native, Output, SearchHit, Session, SummaryEdit
from contextstash_storage.search import MAX_QUERY_CHARACTERS, STOP_WORDS, Weigh

DEFAULT_PAGE_TOKENS = 4_000
MAX_PAGE_TOKENS = 8_000
"""Clients warn or cut at about 10,000 tokens of tool result."""

FIELDS_TOKENS = 90
"""The tokens of a page's other fields: 80 with the longest note and a tool's name of usual length, measured."""

MIN_PAGE_TOKENS = 100
"""The smallest page: its fields, and a line of text."""

DEFAULT_HITS = 10
MAX_HITS = 50

SHOWN_WEIGHT = 0.1
"""How much a hit counts that the view shows: who searches wants what they do not see. 0.3 finds 0.2 in a hundred of the
facts that an agent needs next less (half of the recorded sessions), 0.03 no more; 0 would leave out the best hit."""

EXCERPTS = 4_800
"""Characters of the excerpts of one answer, about 1,200 tokens: less than a page of one output, which is what an agent
fetches next if the excerpts do not say enough."""

MIN_EXCERPT, MAX_EXCERPT = 240, 600
"""Characters of one excerpt: a few lines, however many hits there are, and not more than two parts of a dozen."""

NOTHING_FOUND = "Nothing found: no text has any of these words. Only whole words are found: check them, or try others."
SCOPES = ("session", "outputs", "messages", "everywhere")


async def read_messages(
    access: Access, session_id: str, *, first: int = 0, limit: int = 50, shown: bool = False
) -> MessagePage:
    """A page of the history, with masks in the place of secrets: messages as they were recorded, each with whether the
    model still sees it; or if `shown` in blocks, with what the model sees instead of them, and the summaries that it
    sees instead of some. Raises SessionNotFoundError."""
    known = await access.known(session_id)
    session, overlay, settings = known.session, known.overlay, access.settings(known.session)
    total = session.counters.messages
    last = min(total, first + limit) - 1
    messages = await access.store.read_messages(session_id, first=first, last=last)
    outputs = outputs_by_message(messages, await access.store.read_outputs(session_id, first=first, last=last))
    entries = {entry.first_seq: entry for entry in build_view(messages, overlay) if entry.message}
    lines = []
    for message in messages:
        seq, entry = message.seq, entries.get(message.seq)
        kind, said = entry.kind if entry else message.kind, dict[str, Any](blocks=None)
        if shown:
            covering = (edit.summary_id for edit in overlay.summaries if edit.first_seq <= seq <= edit.last_seq)
            said["summary_id"] = None if entry else next(covering, None)
            said["blocks"] = _blocks(settings, get_format(session.format), message, entry, outputs[seq])
        else:
            said["message"] = shown_value(settings, message.body or {})
        visible = entry is not None and kind != "tool_result_archived"
        handles = [output.handle for output in outputs[seq]] or None
        lines.append(MessageLine.of(message, kind=kind, agent_visible=visible, handles=handles, **said))
    next_seq = last + 1 if last + 1 < total else None
    page = MessagePage(session_id=session_id, messages=lines, total=total, next_seq=next_seq)
    if shown:
        summaries = [edit for edit in overlay.summaries if edit.first_seq <= last and edit.last_seq >= first]
        page.summaries = [ShownSummary.of(edit, text=shown_text(settings, edit.text)) for edit in summaries]
        page.client_sends_history = await access.sends_own_history(session) or None
    return page


def _blocks(
    settings: ContextSettings, fmt: Format, message: Message, entry: Entry | None, outputs: Sequence[Output]
) -> list[ShownBlock]:
    """The blocks of a message, with what its entry in the view shows in their place."""
    reading = fmt.read(message.body or {})
    # The tokens were counted when the message was recorded. A format that reads it otherwise today has other blocks.
    counted = message.blocks if len(message.blocks) == len(reading.blocks) else reading.blocks
    texts = shown_texts(settings, message.role, counted, reading.texts)
    blocks = []
    for place, (block, text, whole) in enumerate(zip(counted, texts, reading.texts, strict=True)):
        edit = entry.replaced.get(place) if entry else None
        stripped = entry is not None and entry.stripped and block.type == "thinking"
        shown = ShownBlock.of(
            block,
            text=text,
            handle=next((output.handle for output in outputs if output.block == place), None),
            shown=shown_excerpt(settings, edit.text, whole) if edit else None,
            state=edit.kind if edit else "strip" if stripped else None,
        )
        blocks.append(shown)
    return blocks


async def read_conversation(access: Access, session_id: str) -> list[Native]:
    """Every message that no rewind hides, oldest first, as it was recorded: what a program continues from after a
    restart."""
    known = await access.known(session_id)
    shown = known.overlay.visible_ranges(known.session.counters.messages)
    path = sorted(path_to(known.edits, shown[-1][1] if shown else known.session.counters.messages - 1))
    natives: list[Native] = []
    for start in range(0, len(path), READ_AT_ONCE):
        read = await access.store.read_messages(session_id, at=path[start : start + READ_AT_ONCE])
        natives += [message.body or {} for message in read]
    return natives


# The summaries in the view.


async def get_summary(access: Access, session_id: str | None = None, *, level: str | None = None) -> SummaryResult:
    """All summaries in the view joined, after the messages with the user's words; or, by `level`, the newest one
    ("recent"), or any summary ever made by its id (sum_…). Raises NotFoundError if there is none."""
    summary_id = level if level and level.startswith("sum_") else None
    if summary_id is not None:
        find = access.store.find_summary
        session_id = await find(summary_id, session_id) or await find(summary_id) or session_id
    snapshot = await access.snapshot(session_id)
    found = list(snapshot.overlay.summaries)
    if summary_id is not None:
        made = [edit for edit in snapshot.edits if isinstance(edit, SummaryEdit) and edit.summary_id == summary_id]
        found = made[-1:]
    elif level == "recent":
        found = found[-1:]
    elif level is not None:
        raise BadInputError(f"level is recent, or the id of a summary (sum_…), not '{level}'.")
    if not found:
        kind = f"{level} " if level else ""
        raise NotFoundError(f"Session {snapshot.session_id} has no {kind}summary yet. compact_session writes one.")
    newest = found[-1]
    words = [entry for entry in snapshot.entries if entry.user_words] if level is None else []
    texts = [entry.user_words for entry in words]
    chapters = [
        f"# Messages {each.first_seq} to {each.last_seq} ({each.summary_id})\n\n{each.summary}" for each in found
    ]
    texts += [newest.summary] if len(found) == 1 else chapters
    return SummaryResult.of(
        newest,
        session_id=snapshot.session_id,
        summary=shown_text(snapshot.settings, "\n\n".join(texts)),
        messages_summarized=sum(edit.messages for edit in found),
        first_seq=found[0].first_seq,
        created_at=newest.created_at.isoformat() if newest.created_at else "",
        tokens=sum(edit.tokens for edit in found) + sum(entry.tokens for entry in words),
    )


# Outputs, and search.


async def get_archived_output(
    access: Access,
    handle: str,
    *,
    session_id: str | None = None,
    offset: int | None = None,
    limit: int | None = None,
    pattern: str | None = None,
    max_tokens: int | None = None,
    masked: bool = False,
) -> OutputPage:
    """One page of an original output, or if it is `masked`, for a reader's eyes, of one without secrets. Of one that
    was recorded as our hook had shortened it, the page is of the whole. Raises HandleNotFoundError, and BadInputError
    if the pattern is invalid."""
    most = DEFAULT_PAGE_TOKENS if max_tokens is None else max_tokens
    if most < MIN_PAGE_TOKENS:
        raise BadInputError(f"max_tokens must be {MIN_PAGE_TOKENS} or more.")
    session, output, text = await _read_output(access, *await find_output(access, handle.strip(), session_id))
    if cut := WHOLE.search(text):
        with suppress(HandleNotFoundError):
            whole = await _read_output(access, *await access.store.find_output(cut[1]))
            head, last_line = text[: cut.start()].rstrip(), text[cut.end() :].rpartition("\n")[2].rstrip()
            # Another output may quote such a notice, or forge one.
            if head and whole[2].startswith(head) and whole[2].rstrip().endswith(last_line):
                session, output, text = whole
    text = shown_text(access.settings(session), text) if masked else text
    counter = access.counter(access.settings(session), session.model)
    found = await asyncio.to_thread(
        page,
        text,
        offset=offset,
        limit=limit,
        pattern=pattern,
        max_tokens=min(most, MAX_PAGE_TOKENS) - FIELDS_TOKENS,
        count=counter.count,
    )
    about = {"handle": output.handle, "tool": one_line(output.tool, MAX_TOOL), "total_tokens": output.tokens}
    return OutputPage.of(found, **about)


async def _read_output(access: Access, session_id: str, output: Output) -> tuple[Session, Output, str]:
    session = await access.store.get_session(session_id)
    [message] = await access.store.read_messages(session_id, at=[output.seq])
    return session, output, get_format(session.format).read(message.body or {}).texts[output.block]


async def find_output(access: Access, handle: str, session_id: str | None = None) -> tuple[str, Output]:
    """The session and output of a handle: in the named session, or among the outputs archived for it. Raises
    HandleNotFoundError."""
    try:
        return await access.store.find_output(handle, session_id)
    except HandleNotFoundError:
        if session_id is None:
            raise
        return await access.store.find_output(handle, outputs_session_id(session_id))


async def search_history(
    access: Access,
    query: str,
    *,
    session_id: str | None = None,
    limit: int | None = None,
    scope: str | None = None,
    unseen_first: bool = True,
) -> SearchResult:
    """Ranked hits. `scope` is `session` (the default), `outputs` or `messages` (only those of the session), or
    `everywhere` (all of the owner's sessions; also the scope if no session is named or followed). With `unseen_first`
    what the session's view shows counts less."""
    if not query.strip():
        raise BadInputError("query is empty: pass the words, names or paths to look for.")
    if scope is not None and scope not in SCOPES:
        raise BadInputError(f"scope is one of {', '.join(SCOPES)}, not '{scope}'.")
    name = None if scope == "everywhere" else session_id or await access.current_session_id()
    weigh: Weigh | None = None
    if name is not None:
        await access.read_session(name)
        with suppress(DamagedError):  # a damaged edit hides nothing that was recorded
            weigh = _unseen_first(await access.known(name)) if unseen_first else None
    hits = await access.store.search(
        query,
        session_ids=None if name is None else [name, outputs_session_id(name)],
        scope=scope if scope in ("outputs", "messages") else "all",
        limit=DEFAULT_HITS if limit is None else max(1, min(limit, MAX_HITS)),
        weigh=weigh,
    )
    shown = await asyncio.to_thread(_hits, hits, query)
    return SearchResult(hits=shown, note=None if shown else NOTHING_FOUND)


def _unseen_first(known: Known) -> Weigh:
    """Weighs down the messages that the session's view shows whole, none of their outputs archived."""
    visible = known.overlay.visible_ranges(known.session.counters.messages)
    archived = {edit.seq for edit in known.overlay.replaced.values() if isinstance(edit, ArchiveEdit)}

    def weigh(found_in: str, seq: int) -> float:
        is_whole = found_in == known.session.session_id and seq not in archived
        return SHOWN_WEIGHT if is_whole and any(first <= seq <= last for first, last in visible) else 1.0

    return weigh


def _hits(found: Sequence[SearchHit], query: str) -> list[Hit]:
    words = query[:MAX_QUERY_CHARACTERS].split()
    terms = [word for word in words if word.strip(".,:;?!").lower() not in STOP_WORDS] or words
    room = min(MAX_EXCERPT, max(MIN_EXCERPT, EXCERPTS // max(1, len(found))))
    hits = []
    for hit in found:
        text, matched = snippet(without_reminders(hit.text), terms, room)
        handle = hit.handles[0] if hit.handles else None
        said = {"tool": hit.tool and one_line(hit.tool, MAX_TOOL), "score": round(hit.score, 3)}
        hits.append(Hit.of(hit, handle=handle, snippet=defused(text), matched=matched, **said))
    return hits
