"""Lifecycle hooks: what a client calls at certain moments, one file a host. They never stand in the user's way."""
