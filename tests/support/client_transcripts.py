"""A Claude Code transcript that grows as a test goes on, read into a stash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextstash.clients.follow import ingest
from contextstash.stash import Stash

SESSION = "70d782f7-b303-4e48-9512-6bec16c37abd"
CARRIED_OVER = "This session is being continued from a previous conversation that ran out of context."


class TranscriptFile:
    """The transcript of SESSION, and those of its sub-agents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0

    def write(self, role: str, content: Any, *, agent: str | None = None, **fields: Any) -> None:
        """A record, of a sub-agent if one is named; `message` holds further fields of its message."""
        self._number += 1
        path = self.path
        if agent is not None:
            path = path.with_suffix("") / "subagents" / f"agent-{agent}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            fields |= {"isSidechain": True, "agentId": agent}
        message = {"role": role, "content": content, **fields.pop("message", {})}
        record = {
            "type": role,
            "uuid": f"00000000-0000-4000-8000-{self._number:012}",
            "parentUuid": f"00000000-0000-4000-8000-{self._number - 1:012}" if self._number > 1 else None,
            "sessionId": SESSION,
            "timestamp": f"2026-11-20T10:{self._number // 60:02}:{self._number % 60:02}.000Z",
            "message": message,
            **fields,
        }
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")


class ClientTranscript(TranscriptFile):
    """The transcript in this folder; `read` records what is new in it."""

    def __init__(self, folder: Path, stash: Stash) -> None:
        super().__init__(folder / f"{SESSION}.jsonl")
        self._stash = stash

    def say(self, text: str, prompt_tokens: int | None = None) -> None:
        """A reply of the model; `prompt_tokens` is what the provider reports for it."""
        usage = {} if prompt_tokens is None else {"usage": {"input_tokens": prompt_tokens, "output_tokens": 5}}
        reply = {"id": f"msg_{self._number}", "model": "claude-sonnet-4-5", **usage}
        self.write("assistant", [{"type": "text", "text": text}], message=reply)

    def call(self, tool: str, given: Any, output: str) -> None:
        """A tool call and its result."""
        number = f"toolu_{self._number}"
        self.write("assistant", [{"type": "tool_use", "id": number, "name": tool, "input": given}])
        self.write("user", [{"type": "tool_result", "tool_use_id": number, "content": output}])

    def compact(self, summary: str = CARRIED_OVER) -> None:
        """The client's compaction."""
        self.write("user", summary, isCompactSummary=True)

    async def read(self) -> str:
        """Record what is new; returns the session's id."""
        report = await ingest(self._stash, self.path)
        assert report.session_id == SESSION
        return report.session_id
