"""The steps of the demonstration: real calls of the service on the shipped session, one result each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from contextstash.service.results import CompactResult, Estimate, PruneResult, RecordResult, RestoreResult

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash_storage.records import Native

SESSION_ID = "demo"

SETTINGS = {"window": 40_000, "automatic": False}
"""A small window, which a session of an hour fills; no automatic reduction, so that each step is visible."""


@dataclass(frozen=True)
class Recorded:
    """The session is recorded. `again` is the result of recording it a second time."""

    result: RecordResult
    again: RecordResult


@dataclass(frozen=True)
class Estimated:
    """How full the window is."""

    estimate: Estimate


@dataclass(frozen=True)
class Pruned:
    """Old outputs are archived. `placeholder` is what the model now sees of the largest one."""

    result: PruneResult
    handle: str
    placeholder: str


@dataclass(frozen=True)
class Compacted:
    """Older messages are shown as the user's words and a summary: `head` is their text. `sent` is how many messages the
    model gets now."""

    result: CompactResult
    head: str
    sent: int


@dataclass(frozen=True)
class Retrieved:
    """The largest output, retrieved from the archive, and the recorded original."""

    handle: str
    tool: str
    pages: int
    text: str
    original: str

    @property
    def identical(self) -> bool:
        return self.text.encode() == self.original.encode()


@dataclass(frozen=True)
class Restored:
    """Everything is in the view again. `view_identical`: the view equals the one before the first step;
    `history_identical`: the recorded messages equal those of the file."""

    result: RestoreResult
    view_identical: bool
    history_identical: bool


Step = Recorded | Estimated | Pruned | Compacted | Retrieved | Restored


def sample_file() -> Traversable:
    """The file of the session that ships with the package."""
    return files(__package__) / "session.jsonl"


def shipped_session() -> list[Native]:
    """The messages of the session that ships with the package."""
    lines = sample_file().read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def walk(stash: Stash) -> AsyncIterator[Step]:
    """Run every step on the shipped session."""
    natives = shipped_session()
    recorded = await stash.record_messages(natives, session_id=SESSION_ID, whole=True, title="Demonstration")
    yield Recorded(recorded, await stash.record_messages(natives, session_id=SESSION_ID, whole=True))
    yield Estimated(await stash.estimate_context(SESSION_ID))
    view = await _view(stash)

    pruned = await stash.prune_tool_outputs(SESSION_ID)
    largest = max(pruned.archived, key=lambda output: output.tokens)
    call_id, placeholder = _shown_as(await _view(stash), largest.handle)
    yield Pruned(pruned, largest.handle, placeholder)

    compacted = await stash.compact_session(SESSION_ID)
    after = await _view(stash)
    yield Compacted(compacted, _text(after[0]["content"]), len(after))

    text, pages = await _read_whole(stash, largest.handle)
    yield Retrieved(largest.handle, largest.tool, pages, text, _tool_results(natives)[call_id])

    handles = [output.handle for output in pruned.archived]
    summaries = [compacted.summary_id] if compacted.summary_id else []
    restored = await stash.restore_outputs(summaries + handles, session_id=SESSION_ID)
    yield Restored(restored, await _view(stash) == view, await _history(stash) == natives)


async def _read_whole(stash: Stash, handle: str) -> tuple[str, int]:
    """A whole archived output, read page by page as a model does, and the number of pages."""
    texts: list[str] = []
    offset: int | None = None
    while True:
        page = await stash.get_archived_output(handle, offset=offset)
        texts.append(page.text)
        if page.next_offset is None:
            return "".join(texts), len(texts)
        offset = page.next_offset


def _shown_as(view: list[Native], handle: str) -> tuple[str, str]:
    """The id of the call whose result is replaced by a placeholder with this handle, and the placeholder."""
    return next((call_id, text) for call_id, text in _tool_results(view).items() if handle in text)


def _tool_results(natives: list[Native]) -> dict[str, str]:
    """The text of each tool result, by the id of its call."""
    contents = [native["content"] for native in natives if isinstance(native["content"], list)]
    results = [block for content in contents for block in content if block["type"] == "tool_result"]
    return {result["tool_use_id"]: _text(result["content"]) for result in results}


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n\n".join(part.get("text", "") for part in content)


async def _view(stash: Stash) -> list[dict[str, Any]]:
    return (await stash.get_context(SESSION_ID)).messages


async def _history(stash: Stash) -> list[dict[str, Any]]:
    """All recorded messages."""
    recorded: list[dict[str, Any]] = []
    next_seq: int | None = 0
    while next_seq is not None:
        page = await stash.read_messages(SESSION_ID, first=next_seq)
        recorded += [line.message for line in page.messages]
        next_seq = page.next_seq
    return recorded
