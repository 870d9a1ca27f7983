"""Random valid manifests with the objects that they describe, for property tests."""

from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.manifests import PAYLOAD, fragment, manifest, tensor
from weightctl.controller.core.boxes import Box
from weightctl.controller.core.manifest import StoredWeightManifest, TensorFragment

Objects = dict[str, bytes]
StoredModel = tuple[StoredWeightManifest, Objects, list[np.ndarray[Any, Any]]]


def cut(shape: tuple[int, ...], draw: Any) -> list[Box]:
    """Cut a box into boxes by a few random guillotine cuts."""
    boxes: list[Box] = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 5))):
        offset, extent = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        dim = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, extent[dim]))
        if at in {0, extent[dim]}:
            boxes.append((offset, extent))
            continue
        low, high = list(extent), list(extent)
        low[dim], high[dim] = at, extent[dim] - at
        shifted = list(offset)
        shifted[dim] += at
        boxes += [(offset, tuple(low)), (tuple(shifted), tuple(high))]
    return boxes


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@st.composite
def stored(draw: Any) -> StoredModel:
    """A valid manifest, the objects it describes, and the arrays they hold."""
    arrays, tensors, pieces = [], [], []
    for index in range(draw(st.integers(1, 4))):
        shape = draw(shapes)
        values = np.arange(prod(shape), dtype=np.uint16).reshape(shape) + 1000 * index
        arrays.append(values)
        tensors.append(tensor(f"t{index}", shape))
        pieces += [(index, box) for box in cut(shape, draw)]
    ends: dict[str, bytearray] = {}
    fragments: list[TensorFragment] = []
    for number, (index, (offset, extent)) in enumerate(draw(st.permutations(pieces))):
        key = f"{PAYLOAD}{draw(st.integers(0, 2))}"
        content = ends.setdefault(key, bytearray())
        content += b"\xee" * draw(st.sampled_from([0, 0, 0, 3]))
        window = tuple(slice(a, a + n) for a, n in zip(offset, extent, strict=True))
        fragments.append(
            fragment(
                f"f{number}",
                f"t{index}",
                (offset, extent),
                object_key=key,
                object_offset=len(content),
            )
        )
        content += arrays[index][window].tobytes()
    described = manifest(tuple(tensors), tuple(fragments))
    return described, {key: bytes(content) for key, content in ends.items()}, arrays
