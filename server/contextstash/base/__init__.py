"""Ground under every room: files opened and replaced safely, JSON, logs, tasks, signals."""
