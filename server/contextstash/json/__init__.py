"""JSON read and compared without changing a value."""
