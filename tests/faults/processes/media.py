"""What lies on the media, read by nobody's process but ours: replicas by their real bytes."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from weightctl.adapters.nof.layout import BLOCK_BYTES, aligned_buffer
from weightctl.adapters.nof.medium import open_medium
from weightctl.adapters.nof.writer import read_catalog
from weightctl.adapters.shared.layout import GROUPS, PARTIAL, decode_text, parse_stored


class Found(NamedTuple):
    """A complete replica, with the digest that its bytes have now."""

    tier: str
    group_id: str
    key: str
    sha256: bytes


def replicas(folder: Path, tiers: tuple[str, ...]) -> list[Found]:
    """Every complete replica below a sidecar's folder."""
    found: list[Found] = []
    for tier in tiers:
        path = folder / tier
        if path.exists():
            found += _on_device(path) if tier == "nof" else _in_folder(tier, path)
    return found


def _in_folder(tier: str, root: Path) -> Iterator[Found]:
    for path in (root / GROUPS).glob("*/*"):
        name = parse_stored(path.name)
        if name is None or name.suffix:
            continue
        key, group = decode_text(name.text), decode_text(path.parent.name)
        assert key is not None
        assert group is not None
        yield Found(tier, group, key, hashlib.sha256(path.read_bytes()).digest())


def _on_device(path: Path) -> Iterator[Found]:
    medium = open_medium(str(path), writable=False)
    try:
        superblock, catalog = read_catalog(medium)
        for replica in catalog.replicas.values():
            if replica.quarantined:
                continue
            digest, left = hashlib.sha256(), replica.size_bytes
            for start, count in replica.extents:
                buffer = aligned_buffer(count * BLOCK_BYTES)
                medium.read_into(superblock.geometry.block_offset(start), buffer)
                digest.update(buffer[: min(left, len(buffer))])
                left -= min(left, len(buffer))
            yield Found("nof", replica.group_id, replica.key, digest.digest())
    finally:
        medium.close()


def leftovers(folder: Path, tiers: tuple[str, ...]) -> list[str]:
    """Files below the folder that no finished operation leaves behind."""
    found = []
    for tier in tiers:
        root = folder / tier
        if tier != "nof":
            found += [str(path) for path in root.glob(f"{GROUPS}/*/*{PARTIAL}")]
            found += [str(path) for path in root.glob("*") if path.name not in _OF_A_ROOT]
    found += [str(path) for path in (folder / "state").glob("*") if path.name not in _OF_A_STATE]
    found += [str(path) for path in folder.glob("out/*") if path.name.startswith(".")]
    found += [str(path) for path in folder.glob(".*")]
    return found


_OF_A_ROOT = {GROUPS, "weightctl-tier.json", "weightctl-fence.json"}
_OF_A_STATE = {
    "acknowledged",
    "control.sock",
    "lock",
    "tiers",
    "weightctl.db",
    "weightctl.db-shm",
    "weightctl.db-wal",
}
