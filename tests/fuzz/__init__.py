"""Fuzzing of everything that is read from outside: `python -m tests.fuzz TARGET --seconds N`."""
