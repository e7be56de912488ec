"""Depthwise kernels of cu32 against float64 from the definition: each way of reading, each split, counts, bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv import depthwise_gradient
from alpha.cu32.convolution import MACS
from alpha.engine import IMAGE_ORDER
from tests import oracles
from tests.cu32.test_convolution import check, compute, forget, geometry_of
from tests.engine.test_conv import Case, draw_data, relative


def channelwise(n: int, size: Any, channels: int, filter: Any, *rest: Any, filters: int = 1) -> Case:
    """``filters`` filters for each of ``channels`` channels."""
    steps = [*rest, *((1, 1), (0, 0), (1, 1))[len(rest) :]]
    return Case(n, size, (channels, channels * filters), filter, *steps, channels)


PICKED = [
    channelwise(9, (9, 11), 12, (3, 3), (1, 1), (1, 1)),  # lines in registers, whole and cut patches
    channelwise(3, (8, 7), 20, (3, 3), (2, 2), (1, 1)),  # stride 2: sub-kernels of 2 and 1 taps
    channelwise(2, (7, 9), 36, (5, 5), (1, 1), (2, 2)),
    channelwise(2, (12, 9), 8, (7, 7), (2, 2), (3, 3)),
    channelwise(2, (19, 12), 4, (9, 8), (1, 1), (4, 4)),  # more taps than registers hold
    channelwise(2, (9, 13), 8, (3, 3), (1, 1), (4, 2), (4, 2)),  # dilated, not square
    channelwise(2, (9, 12), 4, (3, 2), (3, 4)),  # a stride over the filter: inputs that nothing reads
    channelwise(2, (11, 10), 5, (3, 4), (2, 3), (2, 1), (3, 2)),  # stride and dilation without a common divisor
    channelwise(1, (1, 1), 3, (5, 5), (1, 1), (2, 2)),  # a map of one pixel inside a large filter
    channelwise(1, (5, 6), 2, (1, 1)),
    channelwise(5, (6, 5), 3, (3, 3), (1, 1), (1, 1), filters=4),
    channelwise(2, (6, 5), 4, (3, 2), (2, 1), (1, 2), filters=3),
    channelwise(70, (2, 3), 132, (3, 3), (1, 1), (1, 1)),  # several chunks of images, tiles of channels
]


@pytest.mark.parametrize("case", PICKED, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_picked_configurations(cu32: DeviceEngine, case: Case, dtype: Any) -> None:
    check(cu32, case, dtype)


@pytest.mark.parametrize("case", PICKED[:4], ids=str)
def test_images_in_row_major_order(cu32: DeviceEngine, case: Case) -> None:
    check(cu32, case, order=None)


@st.composite
def depthwise_cases(draw: st.DrawFn) -> Case:
    """Any strides, dilations and paddings over half the filter; channels that fill fours and that do not."""
    pair = lambda low, high: draw(st.tuples(st.integers(low, high), st.integers(low, high)))  # noqa: E731
    filter, dilation, padding = pair(1, 8), pair(1, 3), pair(0, 4)
    least = [max(1, (f - 1) * d + 1 - 2 * p) for f, d, p in zip(filter, dilation, padding, strict=True)]
    size = (least[0] + draw(st.integers(0, 8)), least[1] + draw(st.integers(0, 8)))
    channels, filters = draw(st.sampled_from([2, 3, 4, 5, 8, 20])), draw(st.sampled_from([1, 1, 1, 2, 3]))
    n = draw(st.sampled_from([1, 2, 7]))
    return channelwise(n, size, channels, filter, pair(1, 4), padding, dilation, filters=filters)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=depthwise_cases(), dtype=st.sampled_from([np.float32, np.float32, np.float64]))
def test_random_configurations(cu32: DeviceEngine, case: Case, dtype: Any) -> None:
    check(cu32, case, dtype)


@pytest.mark.parametrize("case", PICKED, ids=str)
def test_no_zero_enters_a_multiply_add(cu32: DeviceEngine, case: Case) -> None:
    """Positions x taps x filters over the list of patches, against products that meet no zero."""
    compute(cu32, case, np.float32)
    pairs = oracles.nonzero_products(case.size, case.filter, case.stride, case.padding, case.dilation)
    assert dict(MACS) == dict.fromkeys(MACS, pairs * case.n * case.channels[1])


@pytest.mark.parametrize("filter", [(3, 3), (5, 5)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 3)])
def test_padding_is_never_multiplied(cu32: DeviceEngine, filter: Any, stride: Any) -> None:
    """An infinite gradient or weight times a zero of padding would be NaN where there is no such product."""
    case = channelwise(2, (6, 7), 8, filter, stride, (2, 2))
    x, w, _, dy = (np.abs(array) for array in draw_data(case, np.float32))
    w[:, 0, 0], dy[:, 0, 0] = np.inf, np.inf
    images, filters, grads = (alpha.tensor(array, engine=cu32) for array in (x, w, dy))
    geometry = geometry_of(case)
    y = np.asarray(cu32.conv2d(images, filters, None, geometry, case.groups))
    dx = np.asarray(cu32.conv2d_input_grad(grads, filters, geometry, case.groups))
    dw = np.asarray(cu32.conv2d_weight_grad(images, grads, geometry, case.groups))
    for result in (y, dw, dx):
        assert not np.isnan(result).any()
    assert np.isfinite(y[:, 0, 0]).all()  # its first tap lies in the padding


@pytest.mark.parametrize("waves", [0, 1000])
@pytest.mark.parametrize("most", [1, 256])
@pytest.mark.parametrize("case", PICKED[:6], ids=str)
def test_every_split_of_the_filter_gradient(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, case: Case, waves: int, most: int
) -> None:
    x, w, _, dy = draw_data(case, np.float32)
    expected = oracles.conv2d_gradients(x, w, dy, case.stride, case.padding, case.dilation, case.groups)[1]
    images, grads = (alpha.tensor(array, engine=cu32).contiguous(IMAGE_ORDER) for array in (x, dy))
    for name, value in {"WAVES": waves, "MOST_ITEMS": most, "LEAST_ITEMS": 1}.items():
        monkeypatch.setattr(depthwise_gradient, name, value)
    forget()
    first, second = (np.asarray(cu32.conv2d_weight_grad(images, grads, geometry_of(case), case.groups)) for _ in "ab")
    forget()
    assert relative(first, expected) <= 1e-5
    assert np.array_equal(first, second)


def test_the_parts_of_a_sum_are_bounded() -> None:
    assert depthwise_gradient._parts(10, 32, 100.0) == 1
    assert depthwise_gradient._parts(10**6, 32, 528.0) == 528
    assert depthwise_gradient._parts(10**7, 32, 0.5) * 32 * depthwise_gradient.MOST_ITEMS >= 10**7


@pytest.mark.parametrize("case", [PICKED[0], PICKED[1], PICKED[5], PICKED[10]], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_accumulates_and_adds_a_bias(cu32: DeviceEngine, case: Case, dtype: Any) -> None:
    _, w, _, dy = draw_data(case, dtype)
    rng = np.random.default_rng(5)
    before = rng.standard_normal((case.n, *case.size, case.channels[0])).astype(dtype)
    bias = rng.standard_normal(case.channels[0] + 1).astype(dtype)
    dx, _ = oracles.conv2d_gradients(before, w, dy, case.stride, case.padding, case.dilation, case.groups)
    for skipped in (0, 1):  # a bias that is aligned, and one that is not
        grads, filters, biases = (alpha.tensor(array, engine=cu32) for array in (dy, w, bias))
        into = alpha.tensor(before, engine=cu32).contiguous(IMAGE_ORDER)
        added = biases[skipped : case.channels[0] + skipped]
        out = cu32.conv2d_input_grad(grads, filters, geometry_of(case), case.groups, added, into)
        assert out is into
        expected = dx + before + bias[skipped : case.channels[0] + skipped]
        assert relative(out, expected) <= (1e-5 if dtype == np.float32 else 1e-12)


def test_views_that_are_not_aligned(cu32: DeviceEngine) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2, 5, 6, 12)).astype(np.float32)
    case = channelwise(2, (5, 6), 8, (3, 3), (1, 1), (1, 1))
    w = draw_data(case, np.float32)[1]
    for first in (0, 1, 4):
        images = alpha.tensor(x, engine=cu32)[..., first : first + 8]
        y = cu32.conv2d(images, alpha.tensor(w, engine=cu32), None, geometry_of(case), 8)
        expected = oracles.conv2d(x[..., first : first + 8], w, (1, 1), (1, 1), (1, 1), 8)
        assert relative(y, expected) <= 5e-6


def test_two_runs_are_the_same_to_the_bit(cu32: DeviceEngine) -> None:
    first, second = (compute(cu32, PICKED[0], np.float32) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))
