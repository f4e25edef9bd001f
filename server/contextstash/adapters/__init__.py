"""Adapters: contextstash in agent frameworks. Each needs its framework's extra."""
