"""Numbers, times and names as a person reads them: filters of the templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from contextstash.display.visible_text import cut, in_page, readable_arguments
from contextstash.outputs.counts import amount, counted

if TYPE_CHECKING:
    from jinja2 import Environment

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


def project_name(folder: str | None) -> str:
    """The name of a project's folder; empty if there is none."""
    return PurePath(folder).name or folder if folder else ""


def words(name: str) -> str:
    """A name in the code's spelling as words."""
    return name.replace("_", " ")


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "thousands": thousands,
    "amount": amount,
    "dollars": dollars,
    "when": when,
    "words": words,
    "cut": cut,
    "arguments": readable_arguments,
    "plural": counted,
    "project": project_name,
    "seer": seer,
}


def environment(package: str) -> Environment:
    """The templates of a package and those of this one. Every text is escaped, and a name that is not given is an
    error."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("contextstash.display")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=in_page,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= _FILTERS
    return made
