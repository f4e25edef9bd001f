"""What a client sees of the server: tools, resources, prompts, completions, and their texts."""
