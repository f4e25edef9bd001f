"""JSON-RPC over stdin and stdout: lines, messages, and values that JSON can carry."""
