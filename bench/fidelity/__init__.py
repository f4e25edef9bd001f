"""Measures what an agent still knows after its window was shrunk, on recorded sessions."""
