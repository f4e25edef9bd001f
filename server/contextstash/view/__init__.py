"""The view: what is sent to the model, and the plans that reduce it."""
