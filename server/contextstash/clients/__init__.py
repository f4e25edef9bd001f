"""Clients: one file for each, with all that differs from client to client, and the engines that all of them share."""
