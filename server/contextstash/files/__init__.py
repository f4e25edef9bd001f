"""Files opened and replaced safely."""
