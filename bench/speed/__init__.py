"""Speed and size of the service by the length of a session, next to floors and rivals."""
