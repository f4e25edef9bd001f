"""Extraction: what a summary needs to hold, taken from the messages without a model."""
