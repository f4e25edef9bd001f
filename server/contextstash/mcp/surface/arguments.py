"""Arguments that several tools share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

SessionId = Annotated[str | None, Field(description="Default: current session")]

NamedSession = Annotated[str, Field(description="The session's id")]

DryRun = Annotated[bool, Field(description="Only report what would happen")]

JsonObject = dict[str, object]
"""A JSON object that is passed on unchanged."""

Messages = list[JsonObject]
"""Messages in their provider's own format."""

System = Annotated[str | None, Field(description="System prompt sent with the messages")]

Tools = Annotated[list[JsonObject] | None, Field(description="Tool definitions sent with the messages")]

Usage = Annotated[JsonObject | None, Field(description="Usage that the provider reported for the last reply")]
