"""The servers behind the gateway: their connections, their lists and calls, and what they send."""
