"""Recording: stores messages, transcripts and tool outputs."""
