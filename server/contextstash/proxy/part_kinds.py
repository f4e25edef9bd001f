"""The kinds of parts that may leave a request in addition to tool outputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartKinds:
    """Inputs of old calls that write, and old images: both only if the session's settings say so."""

    inputs: bool = False
    images: bool = False


TOOL_OUTPUTS_ONLY = PartKinds()
