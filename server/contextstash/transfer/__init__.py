"""Whole sessions moved: export, import, migration between databases, retention."""
