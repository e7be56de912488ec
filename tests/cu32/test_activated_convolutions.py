"""Convolutions that add a residual and activate before they write have the bits of a pass behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.endings import ActivatedEnding
from alpha.cu32.convolution import ConvolutionOperations
from alpha.engine import IMAGE_ORDER
from alpha.nn.models.resnet import BasicBlock
from tests.cu32.test_norm_convolutions import IDS, PAIRS, Case, Way, taking

CHANGES = [(False, 0.0), (False, -0.5), (True, None), (True, 0.2)]
"""Whether a residual is added, and the slope."""


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each pass that activates behind a convolution."""
    found: list[int] = []
    original = ConvolutionOperations._activated

    def activated(self: ConvolutionOperations, *arguments: Any) -> Any:
        found.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(ConvolutionOperations, "_activated", activated)
    return found


@pytest.mark.parametrize(("way", "case"), PAIRS, ids=IDS)
def test_the_bits_of_a_pass(cu32: DeviceEngine, passes: list[int], way: Way, case: Case) -> None:
    rng = np.random.default_rng(11)

    def drawn(*shape: int) -> Any:
        return cu32.from_numpy(rng.standard_normal(shape).astype(way.dtype))

    x = drawn(case.images, *case.size, case.inside)
    w, bias = drawn(case.outside, *case.filter, case.inside // case.groups), drawn(case.outside)
    added = cu32.dense(drawn(case.images, *case.geometry.output, case.outside), IMAGE_ORDER)
    for number, (has_residual, slope) in enumerate(CHANGES):
        given = x, w, bias if number % 2 else None, case.geometry, case.groups
        residual = added if has_residual else None
        with taking(way):
            plain = cu32.conv2d(*given)
            expected = cu32._activated(plain, residual, slope).numpy()
            passes.clear()
            found = cu32.conv2d(*given, residual, slope)
        assert np.array_equal(found.numpy(), expected)
        assert not passes
        np.testing.assert_array_equal(np.isnan(expected), False)


def test_special_numbers(cu32: DeviceEngine) -> None:
    """ReLU makes 0 of minus infinity, and passes NaN on."""
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0, -1.0], np.float32).reshape(6, 1, 1, 1)
    w = cu32.from_numpy(np.ones((4, 1, 1, 1), np.float32))
    geometry = alpha.geometry.Geometry.make((1, 1), (1, 1), (1, 1), (0, 0), (1, 1))
    for slope, expected in ((0.0, [np.nan, np.inf, 0, 0, 1, 0]), (0.5, [np.nan, np.inf, -np.inf, 0, 1, -0.5])):
        y = cu32.conv2d(cu32.from_numpy(values), w, None, geometry, 1, None, slope)
        np.testing.assert_array_equal(y.numpy()[:, 0, 0, 0], np.array(expected, np.float32))


def test_a_residual_that_lies_otherwise_is_added_by_a_pass(cu32: DeviceEngine, passes: list[int]) -> None:
    rng = np.random.default_rng(12)
    x, w, added = (
        cu32.from_numpy(rng.standard_normal(shape).astype(np.float32))
        for shape in ((3, 5, 6, 4), (8, 3, 3, 4), (3, 8, 5, 6))
    )
    geometry = alpha.geometry.Geometry.make((5, 6), (3, 3), (1, 1), (1, 1), (1, 1))
    residual = added.strided(0, (3, 5, 6, 8), (240, 6, 1, 30))
    found = cu32.conv2d(x, w, None, geometry, 1, residual, 0.0).numpy()
    assert passes
    expected = cu32.conv2d(x, w, None, geometry, 1).numpy() + added.numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-6, atol=1e-6)


def test_inference_activates_on_the_way(cu32: DeviceEngine, passes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(*[BasicBlock(n, m, s, "leaky_relu", 3) for n, m, s in ((3, 8, 2), (8, 8, 1))]).to(cu32).eval()
    seen = []
    original = ActivatedEnding.arguments

    def arguments(self: ActivatedEnding, *others: Any) -> Any:
        seen.append(1)
        return original(self, *others)

    monkeypatch.setattr(ActivatedEnding, "arguments", arguments)
    with alpha.no_grad():
        net(cu32.from_numpy(np.zeros((2, 7, 6, 3), np.float32)))
    assert len(seen) == 4 and not passes
