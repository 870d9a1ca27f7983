-- Evidence of drops, and the last seen epoch of each tier.

-- name: insert_evidence
INSERT INTO evidence (revision, drops, document, checksum) VALUES (?, ?, ?, ?);

-- name: trim_revision
-- The newest batches stay while their drops add up to no more than the limit.
DELETE FROM evidence WHERE number IN (
    SELECT number FROM (
        SELECT number, sum(drops) OVER (ORDER BY number DESC) AS newer
        FROM evidence WHERE revision = ?
    ) WHERE newer > ?
);

-- name: trim_all
DELETE FROM evidence WHERE number IN (
    SELECT number FROM (
        SELECT number, sum(drops) OVER (ORDER BY number DESC) AS newer FROM evidence
    ) WHERE newer > ?
);

-- name: read_evidence
SELECT document, checksum FROM evidence WHERE revision = ? ORDER BY number;

-- name: write_epoch
INSERT INTO tier_epoch VALUES (?, ?, ?, ?)
ON CONFLICT (tier) DO UPDATE
SET epoch = excluded.epoch, seen_ms = excluded.seen_ms, checksum = excluded.checksum;

-- name: read_epochs
SELECT tier, epoch, checksum FROM tier_epoch;
