"""Hosts: the clients whose transcripts are read, one file each."""
