"""Arguments that several tools share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

SessionId = Annotated[str | None, Field(description="Default: current session")]

NamedSession = Annotated[str, Field(description="The session's id")]

DryRun = Annotated[bool, Field(description="Only report what would happen")]

JsonObject = dict[str, object]
"""A JSON object that is passed on unchanged."""

Messages = list[JsonObject]
"""Messages in their provider's own format."""

System = Annotated[
    str | list[JsonObject] | None,
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "object"}, "description": "System prompt"}),
]

Tools = Annotated[list[JsonObject] | None, Field(description="Tool definitions")]

Usage = Annotated[JsonObject | None, Field(description="Of the last reply")]
