"""Ground under every room: files opened and replaced safely, logs, signals."""
