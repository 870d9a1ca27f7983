-- The terms of the starts of this directory: a tier that served another one was served by a copy.

-- name: create
CREATE TABLE IF NOT EXISTS term (term INTEGER PRIMARY KEY);

-- name: record
INSERT OR IGNORE INTO term VALUES (?);

-- name: forget_below
DELETE FROM term WHERE term < ?;

-- name: trim
DELETE FROM term WHERE term <= (SELECT term FROM term ORDER BY term DESC LIMIT 1 OFFSET ?);

-- name: read
SELECT term FROM term WHERE term < ? ORDER BY term;
