-- Replicas that were read back with a wrong digest; the number orders by age.

-- name: create
CREATE TABLE IF NOT EXISTS damage (
    number INTEGER PRIMARY KEY,
    group_id BLOB NOT NULL,
    tier TEXT NOT NULL,
    key BLOB NOT NULL,
    instance TEXT NOT NULL,
    epoch TEXT NOT NULL,
    found BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (group_id, tier, key)
);

-- name: exists
SELECT 1 FROM sqlite_schema WHERE name = 'damage';

-- name: record
INSERT OR REPLACE INTO damage (group_id, tier, key, instance, epoch, found, at_ms, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: trim
DELETE FROM damage WHERE number <= (
    SELECT number FROM damage ORDER BY number DESC LIMIT 1 OFFSET ?
);

-- name: forget
DELETE FROM damage WHERE group_id = ? AND tier = ? AND key = ? AND instance = ? AND epoch = ?;

-- name: forget_group
DELETE FROM damage WHERE group_id = ?;

-- name: read
SELECT group_id, tier, key, instance, epoch, found, at_ms, checksum FROM damage ORDER BY number;
