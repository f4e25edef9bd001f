"""The look of pages and app, and recorded texts prepared for a reader."""

from __future__ import annotations

from importlib.resources import files


def style_sheet() -> str:
    """The colours, the type scale, and the look of messages and charts, as CSS."""
    return (files("contextstash.display") / "look.css").read_text(encoding="utf-8")


def chart_script() -> str:
    """The function that draws a window over time, in JavaScript."""
    return (files("contextstash.display") / "chart.js").read_text(encoding="utf-8")
