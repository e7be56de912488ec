"""The sweep: which shapes it measures, what it calls a cliff, and what it calls the machine's."""

from __future__ import annotations

import itertools

import pytest

from benchmarks import bandwidth, sweep
from benchmarks.sweep import AXES, CENTRES, NOTHING, Shape


def test_every_axis_goes_through_its_centre() -> None:
    for name, axis, shapes in sweep.lines():
        centre = CENTRES[name]
        assert centre in shapes
        assert [getattr(shape, axis) for shape in shapes] == sorted(getattr(shape, axis) for shape in shapes)
        for a, b in itertools.pairwise(shapes):
            differing = [field for field in AXES if getattr(a, field) != getattr(b, field)]
            assert differing == [axis]
    assert len(sweep.lines()) == len(AXES) * len(CENTRES)
    assert len(sweep.lines(["stride"])) == len(CENTRES)


def test_problems_come_once_and_have_names_of_their_own() -> None:
    problems = sweep.problems()
    assert problems[0] == (NOTHING.layer, 1)
    assert len({(layer.name, batch) for layer, batch in problems}) == len(problems)
    assert all(layer.geometry.output[0] == -(-layer.size // layer.stride) for layer, _ in problems)


def test_bytes_and_bound_by_hand() -> None:
    layer = Shape(2, 16, 8, stride=2, groups=4).layer
    assert sweep.moved_bytes(layer, 2) == 4 * (2 * 16 * (64 + 16) + 16 * 9 * 4)
    moved, gflop = sweep.moved_bytes(layer, 2), layer.useful_gflop(2)
    assert sweep.bound_ms(layer, 2, gflop, 1e-3, {1 << 20: 10.0}) == pytest.approx(1e6 * gflop)
    assert sweep.bound_ms(layer, 2, gflop, 1e9, {1 << 20: 10.0}) == pytest.approx(moved / 10e9 * 1e3)


def row(rate: float, bound_ms: float, alpha_ms: float, multiplied: float | None = None) -> dict[str, object]:
    return {
        "operator": "conv",
        "useful_gflops": rate,
        "bound_ms": bound_ms,
        "multiplied_bound_ms": multiplied or bound_ms,
        "bound_share": bound_ms / alpha_ms,
        "alpha_ms": alpha_ms,
    }


def test_whose_a_cliff_is() -> None:
    # Ten times the FLOPs in the same time: because the bytes are the same, because a call takes that long, or neither.
    assert sweep._pair(row(10, 0.9, 1.0), row(100, 0.9, 1.0), 0.0)["cause"] == "machine"
    assert sweep._pair(row(10, 0.05, 1.0), row(100, 0.5, 1.0), 0.6)["cause"] == "call"
    assert sweep._pair(row(10, 0.5, 1.0), row(25, 0.5, 0.4, 0.25), 0.0)["cause"] == "Winograd"
    pair = sweep._pair(row(10, 0.05, 1.0), row(100, 0.5, 1.0), 0.01)
    assert pair["cause"] == "ours" and pair["ratio"] == 10


def test_bandwidth_of_a_working_set() -> None:
    measured = {1 << 20: 5.0, 1 << 22: 80.0, 1 << 24: 20.0}
    assert bandwidth.at(measured, 1000) == 80.0  # a small copy that was slower was disturbed
    assert bandwidth.at(measured, 1 << 23) == 20.0
    assert bandwidth.at(measured, 1 << 30) == 20.0


@pytest.mark.parametrize("kind", bandwidth.KINDS)
def test_bandwidths_are_those_of_a_machine(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(bandwidth, "SIZES", (1 << 22,))
    (rate,) = bandwidth.bandwidths(1, kind, tries=1).values()
    assert 0.01 < rate < 1e4
