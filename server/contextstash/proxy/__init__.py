"""The proxy between a client and the model API."""
