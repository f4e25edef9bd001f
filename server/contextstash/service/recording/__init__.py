"""Recording: messages, transcripts and outputs on their way into the store."""
