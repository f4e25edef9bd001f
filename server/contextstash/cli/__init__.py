"""The command line: one command, one short function, in the modules of their groups."""
