"""What happened in a session: its messages as typed events, and the state that they add up to. No I/O."""
