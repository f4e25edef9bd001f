"""Receipts for several ways to shrink a history: the same recorded requests at the same prices."""
