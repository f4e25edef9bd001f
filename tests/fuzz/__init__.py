"""Changed inputs for everything that is read from outside."""
