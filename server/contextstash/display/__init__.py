"""The look of pages, app and exports, and messages prepared for a reader."""

from __future__ import annotations

from importlib.resources import files


def style_sheet() -> str:
    """The colours, the type scale, and the look of texts, calls and diffs, as CSS."""
    return (files("contextstash.display") / "look.css").read_text(encoding="utf-8")
