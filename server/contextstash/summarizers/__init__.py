"""The summarizers: the host, a model, the client's own model, or contextstash itself."""
