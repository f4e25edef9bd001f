-- Old sessions whose rows of the search index are deleted, see unindexed_sessions.py. From this version on the words of a
-- summary are stored once, as a part of what it shows.
ALTER TABLE sessions ADD COLUMN unindexed boolean NOT NULL DEFAULT false;
