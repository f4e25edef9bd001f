"""One open session: its policy, its view, its totals, and how an edit is carried out."""
