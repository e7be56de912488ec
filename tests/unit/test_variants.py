"""The operators without their ideas compute the same: what the paper's comparison times beside them."""

from __future__ import annotations

import numpy as np
import pytest

import alpha
from alpha.cpu.convolution import MACS
from benchmarks import variants
from benchmarks.suites import Layer
from benchmarks.variants import DIRECT, INSERTED, UNTRIMMED, VARIANTS

LAYERS = [
    Layer("3x3", 7, 6, 4, 3, 1, 1),
    Layer("3x3 s2", 8, 4, 6, 3, 2, 1),
    Layer("5x5 s2, odd", 9, 4, 6, 5, 2, 2),
    Layer("stride over filter", 10, 3, 5, 2, 3, 1),
    Layer("dilated groups", 9, 4, 4, 3, 2, 2, dilation=2, groups=2),
]


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_variants_compute_the_operators(layer: Layer) -> None:
    engine, rng = alpha.engine("cpu"), np.random.default_rng(0)
    shape = layer.shape
    filters = (layer.out_channels, *shape["filter"], layer.in_channels // layer.groups)
    x, w, dy = (
        engine.from_numpy(rng.uniform(-1, 1, size).astype(np.float32))
        for size in ((3, *shape["input"]), filters, (3, *shape["output"]))
    )
    expected = {
        "conv": engine.conv2d(x, w, None, layer.geometry, layer.groups),
        "deconv": engine.conv2d_input_grad(dy, w, layer.geometry, layer.groups),
        "dilated": engine.conv2d_weight_grad(x, dy, layer.geometry, layer.groups),
    }
    for operator, names in VARIANTS.items():
        for name in names:
            call = variants.variant(engine, layer, operator, name, x, w, dy)
            # Sums of up to 225 products, near 5, in another order: roundings of 6e-8 of them add up as the root of
            # their number to 5e-6; four times that.
            for _ in range(2):  # a call leaves nothing behind that changes the next
                np.testing.assert_allclose(np.asarray(call()), np.asarray(expected[operator]), atol=2e-5)


@pytest.mark.slow
def test_variants_multiply_the_zeros() -> None:
    """As many products as the nominal count, and stride^2 times as many where dY has zeros between its elements."""
    engine, layer = alpha.engine("cpu"), Layer("3x3 s2", 8, 4, 4, 3, 2, 1)
    x, w, dy = (engine.empty(size) for size in ((2, 8, 8, 4), (4, 3, 3, 4), (2, 4, 4, 4)))
    for tensor in (x, w, dy):
        engine.fill(tensor, 1)
    useful = layer.geometry.useful
    # The input gradient has 8 x 8 results: each from a quarter of the nine taps, in the mean, or from all.
    places = {
        "conv": (useful, 4 * 4 * 9),
        "deconv": (useful, 8 * 8 * 9 // 4, 8 * 8 * 9),
        "dilated": (useful, 4 * 4 * 9, 8 * 8 * 9),
    }
    counters = {"conv": "conv2d", "deconv": "conv2d_input_grad", "dilated": "conv2d_weight_grad"}
    for operator, expected in places.items():
        for name, count in zip((DIRECT, UNTRIMMED, INSERTED), expected, strict=False):
            variants.variant(engine, layer, operator, name, x, w, dy)()
            assert MACS[counters[operator]] == count * 2 * 4 * 4, (operator, name)
