"""The browser pages, which only read: sessions, each with its window over time and its messages, search, costs."""
