"""The summarizers: the host, a model, or contextstash itself."""
