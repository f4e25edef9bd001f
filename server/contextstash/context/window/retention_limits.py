"""The user's limits on how long, and in how much room, sessions are kept."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

RETENTION = ("keep_days", "keep_gigabytes", "keep_in", "index_days")
"""The settings that say what `contextstash retain` deletes, or takes out of the search index."""


class KeepLimits(BaseModel):
    """How long, and in how much room, the sessions of a project are kept; without a limit if it is not set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_days: int | None = Field(default=None, gt=0)
    keep_gigabytes: float | None = Field(default=None, gt=0)
