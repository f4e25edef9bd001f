"""The user's own words: requests, rules and decisions, and the block that keeps them in the view."""
