"""Text that may be shown: secrets masked, marks that no output can imitate, control characters visible."""
