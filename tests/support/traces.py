"""The provider messages of the real sessions next to the repository, if they exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contextstash.clients.pi import READER
from contextstash.clients.transcripts import split_lines
from contextstash_storage.records import Native
from tests.support.effort import sample

TRACES = Path(__file__).parents[2] / ".." / "shared" / "traces"


def trace_files() -> list[tuple[str, Path]]:
    """(format name, file) of sessions that hold provider messages, all of them in a thorough run; empty if there are
    no traces."""
    folders = (
        ("openai-chat", "openai_chat/*/*.jsonl"),
        ("anthropic", "claude_code/*.jsonl"),
        ("openai-responses", "codex/*.jsonl"),
        ("anthropic", "pi/*.jsonl"),
    )
    return sample([(name, path) for name, pattern in folders for path in sorted(TRACES.glob(pattern))], quick=12)


def trace_natives(format_name: str, path: Path) -> list[Native]:
    """The provider messages in a trace, in order; lines that are none or are damaged are passed over."""
    if path.parent.name == "pi":
        lines, _ = split_lines(path.read_bytes(), at_end=True)
        batch = READER.read(lines, {}, str(path))
        return [message.body for message in batch.messages] if batch else []
    return [native for record in _records(path) for native in _native(format_name, record)]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue


def _native(format_name: str, record: dict[str, Any]) -> list[Native]:
    if format_name == "openai-chat":
        return [record]
    if format_name == "anthropic":
        is_message = record.get("type") in ("user", "assistant") and not record.get("isSidechain")
        return [record["message"]] if is_message else []
    return [record["payload"]] if record.get("type") == "response_item" else []
