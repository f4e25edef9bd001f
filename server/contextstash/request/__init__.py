"""Requests: the message list to send, and what is done when a provider refuses it."""
