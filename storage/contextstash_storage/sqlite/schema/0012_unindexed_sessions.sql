-- Old sessions whose texts are not in the search index: how many messages have been taken out of it so far.
ALTER TABLE sessions ADD COLUMN unindexed INTEGER;
CREATE INDEX sessions_unindexed ON sessions (unindexed) WHERE unindexed IS NOT NULL;
