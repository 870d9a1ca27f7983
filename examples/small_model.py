"""A model of a few kilobytes for the other examples, written with the project's own encoder."""

from pathlib import Path

from weightctl.controller.weightstore.safetensors import TensorEntry, encode_header


def write(path: Path) -> Path:
    """Two layers of 16-bit integers, counting up."""
    entries, data = [], b""
    for name, shape in (("layer.0", (8, 32)), ("layer.1", (4, 16))):
        count = shape[0] * shape[1]
        content = b"".join(number.to_bytes(2, "little") for number in range(count))
        stop = len(data) + len(content)
        entries.append(TensorEntry(name=name, dtype="U16", shape=shape, start=len(data), stop=stop))
        data += content
    path.write_bytes(encode_header(entries, {"format": "pt"}) + data)
    return path
