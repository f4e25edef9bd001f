"""One tool output: excerpt, digest, placeholder, page."""
