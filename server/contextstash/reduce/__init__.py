"""Reduction: prune, compact and restore, and the summaries and digests that prune and compact write."""
