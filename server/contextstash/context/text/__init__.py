"""Operations on any text: truncate, sanitize, search and page it."""
