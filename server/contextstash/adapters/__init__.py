"""Adapters: contextstash in agent frameworks. Each module needs its framework, which the extra of its name installs."""
