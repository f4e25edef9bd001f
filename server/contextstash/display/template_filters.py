"""Numbers, times and names as a person reads them: filters of the templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from contextstash.display.markdown import as_html
from contextstash.display.visible_text import cut
from contextstash.outputs.counts import amount, counted

CENT = 0.005
"""US dollars: less is shown as nothing."""


def thousands(number: float) -> str:
    """A number with separators: 12,345."""
    return f"{number:,}"


def dollars(amount_: float | None) -> str:
    """US dollars in cents, whole ones from a hundred on."""
    if amount_ is None:
        return "–"
    if abs(amount_) < CENT:
        return "$0"
    return f"${amount_:,.0f}" if abs(amount_) >= 100 else f"${amount_:,.2f}"


def when(stamp: str | None) -> str:
    """The date and time of an ISO 8601 time, without seconds."""
    return stamp[:16].replace("T", " ") if stamp else ""


def seer(own_view: bool | None) -> str:
    """Who sees the view of a session: not the model of a client that sends its own history (`own_view`)."""
    return "contextstash's view shows" if own_view else "The model sees"


def words(name: str) -> str:
    """A name in the code's spelling as words."""
    return name.replace("_", " ")


LEVERS = {
    "tool_outputs": "old tool outputs left out",
    "summaries": "messages shown as summaries",
    "smaller_views": "outputs and messages left out of views",
    "cache_rewrites": "cache written again",
    "fetched_again": "fetched or read again",
    "retrieval_requests": "requests that only fetched something",
    "tool_definitions": "contextstash's tools in requests",
    "hand_offs": "hand-offs in requests",
    "summary_calls": "summaries by a model",
}
"""The levers of a receipt in words, gains before losses."""


FILTERS: Mapping[str, Callable[..., Any]] = {
    "thousands": thousands,
    "amount": amount,
    "dollars": dollars,
    "when": when,
    "words": words,
    "lever": lambda name: LEVERS.get(name, words(name)),
    "cut": cut,
    "markdown": as_html,
    "plural": counted,
    "seer": seer,
}
