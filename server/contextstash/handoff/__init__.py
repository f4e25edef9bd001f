"""What the next window is told: the user's words, a summary, the texts of files in use. No I/O."""
