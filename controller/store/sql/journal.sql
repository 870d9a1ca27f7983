-- Append, read and fold the op-log.

-- name: insert_entries
-- Rows of eight values follow.
INSERT INTO oplog VALUES

-- name: read_entries
SELECT sequence, time_ms, type, tenant, key, payload, checksum, operation_id
FROM oplog WHERE sequence >= ? ORDER BY sequence LIMIT ?;

-- name: last_sequence
SELECT max(sequence) FROM oplog;

-- name: read_snapshot
SELECT slot, sequence, time_ms, type, tenant, key, payload, checksum FROM snapshot;

-- name: fold_sums
SELECT count(*), ifnull(sum(checksum), 0) FROM snapshot WHERE slot IN (
    SELECT key FROM oplog WHERE sequence <= :last
    UNION
    SELECT 'weight-operation:' || operation_id FROM oplog
    WHERE sequence <= :last AND operation_id IS NOT NULL
);

-- name: fold_records
-- max() makes the other columns come from the row that holds the maximum.
INSERT OR REPLACE INTO snapshot
SELECT key, max(sequence), time_ms, type, tenant, key, payload, checksum
FROM oplog WHERE sequence <= :last GROUP BY key;

-- name: fold_operations
INSERT OR REPLACE INTO snapshot
SELECT 'weight-operation:' || operation_id, max(sequence), time_ms, type, tenant, key, payload,
    checksum
FROM oplog WHERE sequence <= :last AND operation_id IS NOT NULL GROUP BY operation_id;

-- name: fold_erasures
DELETE FROM snapshot WHERE type IN (9, 11) AND slot IN (
    SELECT key FROM oplog WHERE sequence <= :last AND type IN (9, 11)
);

-- name: forget_folded
DELETE FROM oplog WHERE sequence <= :last;

-- name: clear_snapshot
DELETE FROM snapshot;

-- name: clear_oplog
DELETE FROM oplog;

-- name: insert_snapshot
INSERT INTO snapshot VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_term
SELECT term FROM header;
