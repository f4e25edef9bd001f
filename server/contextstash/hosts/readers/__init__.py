"""Readers of transcripts, one file for each host."""
