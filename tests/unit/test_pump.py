"""Rules of moving bytes through two buffers."""

import asyncio

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightctl.adapters.shared.pump import pump
from weightctl.controller.errors import TransientError


@given(size=st.integers(0, 60), piece=st.integers(1, 20))
def test_every_byte_is_filled_and_then_drained_once_in_order(size: int, piece: int) -> None:
    source = bytes(range(size))
    slots = [b"", b""]
    result = bytearray()

    async def fill(slot: int, offset: int, count: int) -> None:
        await asyncio.sleep(0)
        assert slots[slot] == b""
        slots[slot] = source[offset : offset + count]

    async def drain(slot: int, offset: int, count: int) -> None:
        assert offset == len(result)
        assert count == len(slots[slot])
        result.extend(slots[slot])
        slots[slot] = b""
        await asyncio.sleep(0)

    asyncio.run(pump(size, fill, drain, piece_bytes=piece))
    assert bytes(result) == source


async def test_the_next_piece_is_filled_while_one_is_drained() -> None:
    filling = anyio.Event()

    async def fill(slot: int, offset: int, count: int) -> None:
        if offset:
            filling.set()

    async def drain(slot: int, offset: int, count: int) -> None:
        if not offset:
            await filling.wait()

    await pump(2, fill, drain, piece_bytes=1)


@pytest.mark.parametrize("side", ["fill", "drain"])
@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_failure_of_either_side_is_raised_as_it_is(side: str, at: int) -> None:
    def failing(name: str):  # type: ignore[no-untyped-def] # noqa: ANN202 - a table of two sides
        async def move(slot: int, offset: int, count: int) -> None:
            if name == side and offset == at:
                raise TransientError(name)
            await asyncio.sleep(0)

        return move

    with pytest.raises(TransientError, match=side):
        await pump(3, failing("fill"), failing("drain"), piece_bytes=1)


async def test_both_sides_end_when_the_pump_is_cancelled() -> None:
    ended = []

    async def fill(slot: int, offset: int, count: int) -> None:
        await asyncio.sleep(0)

    async def drain(slot: int, offset: int, count: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(offset)

    with anyio.move_on_after(0.01) as scope:
        await pump(9, fill, drain, piece_bytes=1)
    assert scope.cancelled_caught
    assert ended == [0]
