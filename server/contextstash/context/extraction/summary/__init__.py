"""The extractive summary and the hand-off: their sections, their budget, and the audit of what they contain."""
