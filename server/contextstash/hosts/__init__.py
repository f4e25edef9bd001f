"""Hosts: everything that differs from client to client. No other package knows a host."""
