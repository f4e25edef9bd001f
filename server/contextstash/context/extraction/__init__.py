"""Extracts from the messages, without a model, what a summary should contain."""
