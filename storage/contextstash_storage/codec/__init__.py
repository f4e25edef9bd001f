"""The forms in which messages are stored: JSON, compression, dictionaries. Pure, and the same for every store."""
