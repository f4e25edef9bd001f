"""The view: what the model is sent, and the plans that shrink it."""
