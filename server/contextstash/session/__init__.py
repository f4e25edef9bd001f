"""The sessions of an owner, one open session with its policy, view and totals, and how an edit is carried out."""
