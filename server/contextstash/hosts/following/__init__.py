"""Following: finding a client's transcripts and recording what is new in them."""
