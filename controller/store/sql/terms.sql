-- The terms of the starts of this directory: one that a tier has served and that is not here is a copy's.

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
