"""The use cases, in the tools' own words: all that tools, CLI, hooks and gateway call."""
