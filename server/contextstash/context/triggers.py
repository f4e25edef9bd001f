"""Triggers: the room a window gives, the levels in it, and what to do at each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contextstash.context.settings import ContextSettings

Level = Literal["ok", "prune", "compact", "critical", "overflow"]


@dataclass(frozen=True, slots=True)
class Room:
    """A window in numbers, all in tokens. A level begins above its mark."""

    window: int
    usable: int
    prune_at: int
    compact_at: int
    critical_at: int
    tokens_at: int
    prune_protect_tokens: int
    prune_minimum_tokens: int
    compact_keep_tokens: int


def room_of(settings: ContextSettings, window: int) -> Room:
    """The numbers that follow from a window, where the settings leave them open."""
    reserve = min(32_000, window // 8) if settings.output_reserve is None else settings.output_reserve
    usable = max(1, window - reserve)
    compact_at = int(usable * settings.compact_at)
    return Room(
        window=window,
        usable=usable,
        prune_at=int(usable * settings.prune_at),
        compact_at=compact_at,
        critical_at=int(usable * settings.critical_at),
        tokens_at=settings.tokens_at or compact_at,
        prune_protect_tokens=_or(settings.prune_protect_tokens, min(40_000, usable // 4)),
        prune_minimum_tokens=_or(settings.prune_minimum_tokens, min(20_000, usable // 10)),
        compact_keep_tokens=_or(settings.compact_keep_tokens, min(20_000, usable // 8)),
    )


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def level_of(tokens: int, room: Room) -> Level:
    """The highest level whose mark the tokens are above."""
    if tokens > room.usable:
        return "overflow"
    if tokens > room.critical_at:
        return "critical"
    if tokens > room.compact_at:
        return "compact"
    return "prune" if tokens > room.prune_at else "ok"


def percent_of(tokens: int, room: Room) -> float:
    """Tokens in percent of the usable window, to one decimal."""
    return round(100 * tokens / room.usable, 1)


_NEXT_STEPS: dict[Level, str] = {
    "ok": "Nothing to do.",
    "prune": "Call prune_tool_outputs.",
    "compact": "Call prune_tool_outputs; if the level stays, write a hand-off summary and call compact_session.",
    "critical": "Call compact_session now, with a hand-off summary.",
    "overflow": "The next request will not fit: call compact_session before it.",
}
_NEXT_STEPS_FOLLOWED: dict[Level, str] = {
    "ok": "Nothing to do.",
    "prune": "Large outputs fill the window; compact in the client when the task allows.",
    "compact": "Have the client compact soon; afterwards search_history and get_archived_output bring details back.",
    "critical": "Have the client compact now; afterwards search_history and get_archived_output bring details back.",
    "overflow": "Have the client compact before anything else; nothing recorded is lost by it.",
}


def next_step(level: Level, *, followed: bool = False) -> str:
    """What to do at a level, in a sentence. A client that is followed empties its window itself."""
    return (_NEXT_STEPS_FOLLOWED if followed else _NEXT_STEPS)[level]
