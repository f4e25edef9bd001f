"""What proxy, pages and the HTTP server share: loopback, hosts, limits, tokens."""
