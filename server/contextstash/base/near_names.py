"""A name that is not known, with the nearest one that is."""

from __future__ import annotations

from collections.abc import Iterable

NEAR = 0.5
"""How similar a name must be to be meant, by difflib's ratio. `prune_att` has 0.94 of `prune_at`."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is probably meant; None if none is near."""
    import difflib  # the command line loads this module, and seldom needs it

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=NEAR)), None)


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown argument, prompt, …, with the nearest known name."""
    return f"There is no {what} '{name}'. {did_you_mean(name, known)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question for the name that is probably meant, or else all that are known."""
    known = list(known)
    near = nearest(name, known)
    return f"Did you mean '{near}'?" if near else f"Known: {', '.join(known) or 'none'}."
