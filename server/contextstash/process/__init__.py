"""Signals, log lines and error traces of a process."""
