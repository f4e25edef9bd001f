"""Gemini CLI's hooks. Source: its reference of hooks, and what its version 0.61 does with their answers.

It offers no field for another output; a decision `deny` puts its reason in the place of the output, as an error. It
fires PreCompress before every turn, also if it compresses nothing: only the user's own /compress is sure. It starts
no new session after that: what is to be told comes with the next prompt.
"""

from __future__ import annotations

from typing import Any

from contextstash.hosts.hooks.host import HookHost

NOT_AN_ERROR = "This is no error: the tool did its work, and its output is too long to be shown whole. In part:\n"


def texts_of(_: str, response: Any) -> list[str]:
    """The text of a response's content for the model; none of an error, or of content that is not text alone."""
    if not isinstance(response, dict) or response.get("error"):
        return []
    content = response.get("llmContent")
    parts: list[Any] = content if isinstance(content, list) else [content]
    texts = [part["text"] if _is_text(part) else part for part in parts]
    return [text for text in texts if isinstance(text, str)] if all(isinstance(text, str) for text in texts) else []


def replacement(_: str, __: Any, texts: list[str]) -> dict[str, Any]:
    """The texts as the reason of a denial, which the model sees in the place of the output."""
    return {"decision": "deny", "reason": NOT_AN_ERROR + "\n".join(texts)}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and set(part) == {"text"}


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
    limits={"read_file": 40_000, "read_many_files": 40_000},
)
