"""The result of limiting one output, which clients' hooks build after every tool call."""

from __future__ import annotations

from pydantic import Field

from contextstash.result_base import Result


class LimitedOutput(Result):
    """One output within limits; the whole is kept under `handle` if it was cut."""

    text: str
    cut: bool
    handle: str | None = None
    sha256: str | None = None
    lines: int = Field(default=0, description="Lines cut")
    characters: int = Field(default=0, description="Characters cut")
    bytes: int = Field(default=0, description="UTF-8 bytes cut")
    spilled: bool = Field(default=False, description="Too large: only a preview is shown")
