"""Lifecycle hooks: what a client runs at certain events, one file for each host. No failure stops the client."""
