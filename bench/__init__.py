"""Measurements of contextstash; see docs/performance.md, docs/fidelity.md and docs/proxy.md."""
