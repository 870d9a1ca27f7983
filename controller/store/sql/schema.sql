-- The state file, schema version 1 (PRAGMA user_version; application_id marks the file as ours).

-- name: create
CREATE TABLE header (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    store_id TEXT NOT NULL,
    term INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    folded_sequence INTEGER NOT NULL,
    snapshot_rows INTEGER NOT NULL,
    snapshot_sum INTEGER NOT NULL,
    next_lease_id TEXT NOT NULL,
    next_operation_id TEXT NOT NULL,
    checksum INTEGER NOT NULL
);
-- Entries after header.folded_sequence, without a gap.
CREATE TABLE oplog (
    sequence INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    type INTEGER NOT NULL,
    tenant BLOB NOT NULL,
    key TEXT NOT NULL,
    operation_id TEXT,
    payload BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
-- The state at header.folded_sequence: for each record the entry that wrote it last, as it was.
CREATE TABLE snapshot (
    slot TEXT NOT NULL UNIQUE,
    sequence INTEGER NOT NULL,
    time_ms INTEGER NOT NULL,
    type INTEGER NOT NULL,
    tenant BLOB NOT NULL,
    key TEXT NOT NULL,
    payload BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
-- Managed payload groups and groups of plain objects; digest: sum of its objects' checksums.
CREATE TABLE object_group (
    number INTEGER PRIMARY KEY,
    tenant BLOB NOT NULL,
    group_id BLOB NOT NULL,
    objects INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (group_id, tenant)
);
-- How many groups there are and the sum of their checksums; a lost group never looks like none.
CREATE TABLE directory (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    groups INTEGER NOT NULL,
    checksums INTEGER NOT NULL
);
INSERT INTO directory VALUES (1, 0, 0);
CREATE TABLE object (
    group_number INTEGER NOT NULL REFERENCES object_group (number),
    key BLOB NOT NULL,
    data_type INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    hard_pin INTEGER NOT NULL,
    PRIMARY KEY (group_number, key)
) WITHOUT ROWID;
CREATE INDEX object_by_key ON object (key);
-- Which verified copy justified each drop, a batch per row; the number orders by age.
CREATE TABLE evidence (
    number INTEGER PRIMARY KEY,
    revision TEXT NOT NULL,
    drops INTEGER NOT NULL,
    document BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX evidence_by_revision ON evidence (revision, drops);
CREATE TABLE tier_epoch (
    tier TEXT PRIMARY KEY,
    epoch TEXT NOT NULL,
    seen_ms INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;

-- name: create_group_added
CREATE TRIGGER group_added AFTER INSERT ON object_group BEGIN
    UPDATE directory SET groups = groups + 1, checksums = checksums + new.checksum;
END;

-- name: create_group_changed
CREATE TRIGGER group_changed AFTER UPDATE ON object_group BEGIN
    UPDATE directory SET checksums = checksums - old.checksum + new.checksum;
END;

-- name: create_group_removed
CREATE TRIGGER group_removed AFTER DELETE ON object_group BEGIN
    UPDATE directory SET groups = groups - 1, checksums = checksums - old.checksum;
END;

-- name: insert_header
INSERT INTO header VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_header
SELECT store_id, term, created_ms, folded_sequence, snapshot_rows, snapshot_sum, next_lease_id,
    next_operation_id, checksum
FROM header;

-- name: replace_header
UPDATE header
SET store_id = ?, term = ?, created_ms = ?, folded_sequence = ?, snapshot_rows = ?,
    snapshot_sum = ?, next_lease_id = ?, next_operation_id = ?, checksum = ?;
