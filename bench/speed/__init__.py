"""Speed and size of the service by the length of a session."""
