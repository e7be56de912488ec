"""How work is cut into the tasks that threads share."""

from __future__ import annotations

import pytest

from alpha.cpu.loops.parts import equal_parts


@pytest.mark.parametrize("unit", [1, 64])
@pytest.mark.parametrize("most", [0, 1, 5, 1000, 16384])
@pytest.mark.parametrize("length", [0, 1, 2, 5, 999, 1000, 1001, 16385, 100_000, 8_000_000])
def test_parts_are_equal_whole_units_and_not_too_long(length: int, most: int, unit: int) -> None:
    part = equal_parts(length, most, unit)
    assert 1 <= part < max(most, 1) + unit or part == max(1, length) <= max(most, 1)
    parts = -(-length // part)
    if part < length:
        assert part % unit == 0
        assert (parts - 1) * part < length <= parts * part
        assert 2 * part > most  # and not much shorter


def test_there_are_as_many_parts_as_threads_share_evenly() -> None:
    assert [-(-length // equal_parts(length, 100)) for length in (100, 101, 250, 401, 1601)] == [1, 2, 4, 8, 32]
    assert -(-100_000 // equal_parts(100_000, 16384, 64)) == 8
