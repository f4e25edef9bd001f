"""What happened in a session: its calls, files, plans and words, and the state that they add up to. No I/O."""
