"""One row layer for both stores: operations on their rows, each written once."""
