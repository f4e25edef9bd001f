"""Pure policy: messages and settings in, decisions out."""
