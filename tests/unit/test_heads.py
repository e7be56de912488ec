"""DeepLab's heads of the suite deeplab: what they compute, how much work that is, and what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks import contests, deeplab
from benchmarks.heads import HEADS, Convolution, Head, Tensors
from tests import oracles

Array = np.ndarray[Any, Any]
SMALL = (Head("pyramid", 7, 5, 4, (2, 3)), Head("field of view", 6, 3, 4, (2,), 2))


def convolve(step: Convolution, x: Array, w: Array) -> Array:
    """A convolution from its definition."""
    return oracles.conv2d(x, w, (1, 1), (step.padding,) * 2, (step.dilation,) * 2, 1)


class Oracle:
    """A head's operations in float64, which keeps what comes before each ReLU."""

    def __init__(self, made: Tensors) -> None:
        self._made, self.before = made, dict[str, Array]()

    def convolve(self, step: Convolution, x: Array) -> Array:
        y = convolve(step, x, self._made.filters[step.name]) + self._made.biases[step.name]
        self.before[step.name] = y
        return np.maximum(y, 0) if step.relu else y

    def mean(self, x: Array) -> Array:
        mean: Array = x.mean((1, 2), keepdims=True)
        return mean

    def join(self, branches: Sequence[Array]) -> Array:
        return np.concatenate([np.broadcast_to(y, (*branches[0].shape[:3], y.shape[3])) for y in branches], 3)


@pytest.mark.parametrize("step", SMALL[0].steps + SMALL[1].steps, ids=lambda step: step.name)
def test_inserted_zeros_take_the_place_of_dilation(step: Convolution, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, step.size, step.size, step.in_channels))
    w = rng.normal(size=(step.out_channels, step.filter, step.filter, step.in_channels))
    wide, dense = step.inserted(w), step.without_dilation
    assert wide.shape[1:3] == (dense.filter, dense.filter) and np.count_nonzero(wide) == np.count_nonzero(w)
    expected = convolve(step, x, w)
    assert expected.shape == (2, step.size, step.size, step.out_channels)
    assert np.abs(convolve(dense, x, wide) - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("head", SMALL, ids=lambda head: head.name)
def test_rounding_decides_no_relu(head: Head) -> None:
    """Every value before a ReLU is far from 0 beside what float32 can be wrong by; both signs are there."""
    made = Tensors(head, 3, seed=1)
    oracle = Oracle(made)
    assert head.compute(oracle, made.x.astype(np.float64)).shape == made.dy.shape
    assert list(oracle.before) == [step.name for step in head.steps]
    for step in head.steps:
        before = oracle.before[step.name]
        if step.relu:
            assert (before > 0).any() and (before < 0).any(), step.name
            assert np.abs(before).min() > 1e-3 * np.abs(before).max(), step.name


def test_the_pyramid_is_deeplabs() -> None:
    """Four branches and the mean's beside each other, five times the width into the projection."""
    head = next(head for head in HEADS if head.name == "DeepLabV3 ResNet")
    shapes = [(step.name, step.in_channels, step.out_channels, step.filter, step.dilation) for step in head.steps]
    assert shapes == [
        ("1x1", 2048, 256, 1, 1),
        ("rate 6", 2048, 256, 3, 6),
        ("rate 12", 2048, 256, 3, 12),
        ("rate 18", 2048, 256, 3, 18),
        ("pooled", 2048, 256, 1, 1),
        ("projection", 1280, 256, 1, 1),
    ]


def test_work_is_counted() -> None:
    """By hand: at 33 x 33 a tap at distance d meets 33 - d positions of an axis."""
    step = Convolution("rate 18", 33, 10, 20, 3, 18)
    assert step.nominal_gflop(2) == pytest.approx(2e-9 * 2 * 200 * 9 * 33**2)
    assert step.useful_gflop(2) == pytest.approx(2e-9 * 2 * 200 * (33 + 2 * (33 - 18)) ** 2)
    along = sum(33 - abs(distance) for distance in range(-18, 19))
    assert step.without_dilation.useful_gflop(2) == pytest.approx(2e-9 * 2 * 200 * along**2)
    head = SMALL[0]
    assert head.useful_gflop(1) == sum(one.useful_gflop(1) for one in head.steps)
    assert head.useful_gflop(1) < head.nominal_gflop(1) < head.inserted_gflop(1)


def test_the_baseline_is_left_out_where_it_would_take_minutes() -> None:
    names = ("alpha", deeplab.INSERTED, "torch contiguous")
    measured = {
        (head.name, batch, direction)
        for head in HEADS
        for batch in deeplab.BATCHES
        for direction in contests.DIRECTIONS
        if deeplab.INSERTED in deeplab.contestants(names, head, batch, direction)
    }
    small = {("deeplab_small", batch, direction) for batch in (1, 8) for direction in ("forward", "training")}
    assert measured == small | {("DeepLabV3 MobileNetV2", 1, "forward")}
