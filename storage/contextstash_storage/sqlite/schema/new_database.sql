-- What is otherwise in a database that is new. Databases of former versions keep their own form, which can be read and
-- written as well: to index a large one again would take minutes.

-- FTS5 writes two bytes for each word of a row that is not in its first column: nearly all words are in the text.
DROP TABLE search_pieces;
CREATE VIRTUAL TABLE search_pieces USING fts5 (text, call, place, content = '', tokenize = 'porter unicode61');
