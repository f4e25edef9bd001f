"""The browser pages: sessions, their windows over time, and everything in them, opened by a person."""
