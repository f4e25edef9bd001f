"""Clients: one file for each, with all that differs, and the engines that they share."""
