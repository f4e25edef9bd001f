"""The proxy's HTTP: requests pass through to the model API, and responses back."""
