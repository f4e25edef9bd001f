"""Gemini contents, as generateContent takes them."""
