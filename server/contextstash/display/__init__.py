"""The look of pages and app, and recorded texts prepared for a reader."""

from __future__ import annotations

from importlib.resources import files


def static(name: str) -> str:
    """The text of a file that pages load: `look.css` has the colours, the type scale, and the look of messages and
    charts; `chart.js` draws a window over time."""
    return (files("contextstash.display") / "static" / name).read_text(encoding="utf-8")
