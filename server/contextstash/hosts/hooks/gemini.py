"""Gemini CLI's hooks. Source: its reference of hooks, and how its version 0.61 handles their responses.

No field of a hook's response replaces an output. A decision `deny` shows its reason in place of the output, as an
error. Gemini CLI fires PreCompress before every turn, also if it then compresses nothing: only the user's own /compress
is sure to compress. It starts no new session after a compression, so the hand-off comes with the next prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextstash.hosts.hooks.host import HookHost

NOT_AN_ERROR = "This is no error: the tool did its work, and its output is too long to be shown whole. In part:\n"


def texts_of(_: str, response: Any) -> list[str]:
    """The texts of a response's content for the model; none if it is an error, or if any part is not text."""
    if not isinstance(response, dict) or response.get("error"):
        return []
    content = response.get("llmContent")
    parts: list[Any] = content if isinstance(content, list) else [content]
    texts = [part["text"] if _is_text(part) else part for part in parts]
    return [text for text in texts if isinstance(text, str)] if all(isinstance(text, str) for text in texts) else []


def replacement(_: str, __: Any, texts: list[str]) -> dict[str, Any]:
    """The hook's response: the texts as the reason of a denial, which the model sees in place of the output."""
    return {"decision": "deny", "reason": NOT_AN_ERROR + "\n".join(texts)}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and set(part) == {"text"}


def _own_folders(home: Path) -> Sequence[Path]:
    from contextstash.hosts.readers.gemini import home_folder

    return [home_folder(home) / "tmp"]


HOST = HookHost(
    name="gemini",
    after_tool="AfterTool",
    before_compaction="PreCompress",
    after_compaction="BeforeAgent",
    only_manual_is_sure=True,
    read_to_its_end=("SessionEnd", "AfterAgent"),
    mcp_prefix="mcp_",
    texts_of=texts_of,
    replacement=replacement,
    # A file is read to be worked with, so it is cut only if it is very long, as for Claude Code.
    limits={"read_file": 40_000, "read_many_files": 40_000},
    own_folders=_own_folders,
)
