"""Reduction: prune, compact, restore, and the summaries and digests that these write."""
