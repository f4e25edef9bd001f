-- One wide record became a type for each kind of edit, with its own fields, required where they are always there.
UPDATE edits SET record = json_remove(
    json_set(record, '$.after_seq', json_extract(record, '$.last_seq')), '$.first_seq', '$.last_seq', '$.handle'
) WHERE json_extract(record, '$.kind') = 'digest';
-- What was empty was not stored.
UPDATE edits SET record = json_insert(record, '$.text', '', '$.tokens', 0)
WHERE json_extract(record, '$.kind') IN ('archive', 'truncate', 'digest', 'summary');
UPDATE edits SET record = json_insert(record, '$.summary', '') WHERE json_extract(record, '$.kind') = 'summary';
-- Every session has been made with a format; no row lacks it, and now none may be read without it.
UPDATE sessions SET format = 'openai-chat' WHERE format IS NULL;
