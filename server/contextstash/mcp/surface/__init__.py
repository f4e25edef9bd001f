"""The server as a client sees it: tools, resources, prompts, completions, and their texts."""
