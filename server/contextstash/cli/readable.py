"""Times as a person reads them in a terminal."""

from __future__ import annotations

from datetime import datetime


def when(moment: str | None, now: datetime | None = None) -> str:
    """An ISO 8601 time in this machine's zone: the time of today, the day of this year, or the date."""
    if not moment:
        return "-"
    local = datetime.fromisoformat(moment).astimezone()
    today = (now or datetime.now(local.tzinfo)).astimezone(local.tzinfo)
    if local.date() == today.date():
        return local.strftime("%H:%M")
    return local.strftime("%d %b" if local.year == today.year else "%Y-%m-%d")
