-- Groups of objects and the objects in them, managed and plain.

-- name: find_group
SELECT number, objects, digest FROM object_group WHERE group_id = ? AND tenant = ?;

-- name: last_group_number
SELECT ifnull(max(number), 0) FROM object_group;

-- name: read_groups
SELECT number, tenant, group_id, objects, digest, checksum FROM object_group NOT INDEXED;

-- name: read_directory
SELECT groups, checksums FROM directory;

-- name: check_groups
PRAGMA integrity_check(object_group);

-- name: read_group
SELECT key, data_type, size_bytes, sha256, hard_pin FROM object WHERE group_number = ? ORDER BY key;

-- name: read_group_members
SELECT g.number, g.tenant, g.group_id, g.objects, g.digest,
       o.key, o.data_type, o.size_bytes, o.sha256, o.hard_pin
FROM object_group AS g LEFT JOIN object AS o ON o.group_number = g.number
WHERE g.group_id IN (:groups)
ORDER BY g.number, o.key;

-- name: find_object
SELECT g.group_id, o.data_type, o.size_bytes, o.sha256, o.hard_pin
FROM object AS o JOIN object_group AS g ON g.number = o.group_number
WHERE o.key = ? AND g.tenant = ?;

-- name: all_groups
SELECT number, tenant, group_id FROM object_group ORDER BY tenant, group_id;

-- name: write_group
INSERT INTO object_group VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE
SET objects = excluded.objects, digest = excluded.digest, checksum = excluded.checksum;

-- name: insert_object
INSERT INTO object VALUES (?, ?, ?, ?, ?, ?);

-- name: delete_object
DELETE FROM object WHERE group_number = ? AND key = ?;

-- name: delete_group_objects
DELETE FROM object
WHERE group_number IN (SELECT number FROM object_group WHERE group_id = ? AND tenant = ?);

-- name: delete_group
DELETE FROM object_group WHERE group_id = ? AND tenant = ?;

-- name: clear_objects
DELETE FROM object;

-- name: clear_groups
DELETE FROM object_group;
