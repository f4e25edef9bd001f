"""Measurements of contextstash; see docs/measured.md."""
