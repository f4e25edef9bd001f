"""The browser pages: sessions, their windows over time, and their messages, outputs and summaries, for people."""
