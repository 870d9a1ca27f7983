"""Reading, writing and creating the superblock.  Layer: nof tier.

Owns which device is ours: a device without our superblock is formatted only when its header is
blank and a person asked for it.  Invariant: the superblock in force is the sound slot with the
highest generation; both slots are written, in order, with a flush after each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weightctl.adapters.nof.layout import (
    BLOCK_BYTES,
    FORMAT_VERSION,
    SLOT_OFFSETS,
    Geometry,
    Holder,
    Superblock,
    aligned_buffer,
    decode_superblock,
    encode_superblock,
    slot_version,
)
from weightctl.adapters.nof.medium import is_blank
from weightctl.controller.errors import ConfigError, TerminalError, WeightctlError

if TYPE_CHECKING:
    from weightctl.adapters.nof.medium import Medium


class BlankDeviceError(ConfigError):
    """The device was never formatted."""


def read_superblock(medium: Medium) -> Superblock:
    """The superblock in force.

    Raises ConfigError where there is none, or one of a newer version; TerminalError where it is
    damaged or the device has become smaller; OSError when it cannot be read.
    """
    slots = _read_slots(medium)
    sound = [value for value in map(decode_superblock, slots) if value is not None]
    if not sound:
        raise _refused(medium, [slot_version(slot) for slot in slots])
    value = max(sound, key=lambda value: value.generation)
    if medium.size_bytes < value.geometry.total_bytes:
        raise TerminalError(
            "the nof device was truncated",
            f"it has {medium.size_bytes} bytes and was formatted with {value.geometry.total_bytes}",
            "give it its size back; nothing on it is used before that",
        )
    return value


def _read_slots(medium: Medium) -> list[bytes]:
    slots: list[bytes] = []
    buffer = aligned_buffer(BLOCK_BYTES)
    errors: list[OSError] = []
    for offset in SLOT_OFFSETS:
        try:
            medium.read_into(offset, buffer)
            slots.append(bytes(buffer))
        except OSError as error:
            errors.append(error)
    if len(errors) == len(SLOT_OFFSETS):
        raise errors[0]
    return slots


def _refused(medium: Medium, versions: list[int | None]) -> WeightctlError:
    newer = [version for version in versions if version is not None and version > FORMAT_VERSION]
    if newer:
        return ConfigError(
            "the nof device has a newer format",
            f"its superblock says version {max(newer)}, this program knows {FORMAT_VERSION}",
            "use the program that wrote it, or a newer one",
        )
    if any(version is not None for version in versions):
        return TerminalError(
            "the superblock of the nof device is damaged",
            "neither of its two copies has a right checksum",
            "keep the device as it is for examination; to give it up, zero its first and last MiB "
            "and set `format = true`",
        )
    if is_blank(medium):
        return BlankDeviceError(
            "the nof device is blank",
            "it has no superblock",
            "set `format = true` in the tier's options to format it",
        )
    return ConfigError(
        "the nof device holds something else",
        "it has no superblock of this program and its first or last MiB is not zero",
        "name another device; if its content may be lost, zero both and set `format = true`",
    )


def write_superblock(medium: Medium, value: Superblock) -> Superblock:
    """Make the value durable as the next generation, which is returned.  Raises OSError."""
    value = replace(value, generation=value.generation + 1)
    buffer = aligned_buffer(BLOCK_BYTES)
    buffer[:] = encode_superblock(value)
    for offset in SLOT_OFFSETS:
        medium.write(offset, buffer)
        medium.sync()
    return value


def format_medium(medium: Medium, uuid: bytes, holder: Holder, owner: str = "") -> Superblock:
    """Make a blank medium `owner`'s.  Raises for one that is not blank or too small."""
    geometry = Geometry.of_size(medium.size_bytes)
    if any(decode_superblock(slot) for slot in _read_slots(medium)):
        raise ConfigError(
            "the nof device is formatted already",
            "it has a superblock of this program",
            "to give up what it holds, zero its first and last MiB first",
        )
    if not is_blank(medium):
        raise _refused(medium, [slot_version(slot) for slot in _read_slots(medium)])
    return write_superblock(
        medium,
        Superblock(
            uuid=uuid,
            generation=0,
            geometry=geometry,
            half=0,
            epoch=0,
            claim=0,
            sequence=0,
            clean=True,
            holder=holder,
            owner=owner,
        ),
    )
