"""cu32's kernels for few channels on one side against float64 from the definition: widths, tiles, parts, bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv import few_channels
from alpha.cu32.convolution import MACS
from alpha.cu32.costs import Tile
from alpha.engine import IMAGE_ORDER
from tests import oracles
from tests.cu32.algorithms import cuda_kit
from tests.cu32.test_convolution import check, compute, forget, geometry_of
from tests.engine.algorithms import taken
from tests.engine.test_conv import Case, draw_data, relative

RESULTS = [
    Case(9, (9, 11), (3, 64), (3, 3), (1, 1), (1, 1)),  # an input gradient to an image
    Case(5, (16, 19), (3, 20), (4, 4), (2, 2), (1, 1)),  # a generator's last layer: four sub-kernels
    Case(3, (9, 8), (4, 36), (7, 7), (1, 1), (3, 3)),  # a filter wider than registers
    Case(2, (9, 8), (1, 16), (5, 3), (1, 3), (2, 0)),
    Case(2, (7, 9), (2, 16), (3, 3), (2, 3), (2, 3), (1, 1)),  # padding over half the filter
    Case(40, (3, 20), (32, 3), (1, 3), (1, 1), (0, 1)),  # forward to three channels; images that fill no block
    Case(1, (1, 1), (16, 1), (3, 3), (1, 1), (1, 1)),
    Case(2, (6, 21), (100, 2), (1, 1)),
]
INPUTS = [
    Case(9, (9, 11), (3, 20), (3, 3), (1, 1), (1, 1)),
    Case(3, (19, 12), (3, 64), (7, 7), (2, 2), (3, 3)),  # an ImageNet stem
    Case(2, (8, 7), (1, 33), (5, 4), (1, 2), (4, 1), (1, 1)),
    Case(2, (12, 9), (5, 130), (3, 2), (3, 4), (0, 1), (2, 1)),  # dilated, stride over the filter
    Case(1, (1, 1), (3, 7), (5, 5), (1, 1), (2, 2)),
    Case(2, (1, 2), (4, 12), (1, 2), (2, 2), (3, 1)),  # rows that lie in the padding alone
    Case(1, (2, 2), (3, 8), (1, 2), (3, 3), (1, 1)),  # no product at all
]
OUTPUTS = [
    Case(9, (9, 11), (20, 3), (3, 3), (1, 1), (1, 1)),
    Case(3, (9, 12), (64, 1), (4, 5), (2, 2), (1, 2)),  # a discriminator's last layer: sub-kernels of a stride
    Case(2, (9, 8), (130, 2), (3, 4), (3, 2), (2, 3), (2, 3)),  # dilated, taps of a class two apart
    Case(5, (6, 5), (36, 3), (1, 1), (2, 2)),  # inputs that nothing reads
    Case(2, (7, 9), (33, 4), (7, 2), (1, 1), (3, 0)),
    Case(3, (5, 4), (4, 4), (3, 3), (1, 1), (1, 1)),  # few on both sides
]


@pytest.mark.parametrize("case", [*RESULTS, *INPUTS, *OUTPUTS], ids=str)
def test_picked_configurations(cu32: DeviceEngine, case: Case) -> None:
    check(cu32, case)
    check(cu32, case, order=None)


@st.composite
def small_cases(draw: st.DrawFn) -> Case:
    """One to four channels on one side."""
    pair = lambda low, high: draw(st.tuples(st.integers(low, high), st.integers(low, high)))  # noqa: E731
    filter, dilation, padding = pair(1, 8), pair(1, 2), pair(0, 4)
    least = [max(1, (f - 1) * d + 1 - 2 * p) for f, d, p in zip(filter, dilation, padding, strict=True)]
    size = (least[0] + draw(st.integers(0, 9)), least[1] + draw(st.integers(0, 20)))
    channels = draw(st.integers(1, 4)), draw(st.sampled_from([16, 20, 36]))
    channels = channels if draw(st.booleans()) else channels[::-1]
    return Case(draw(st.sampled_from([1, 2, 7])), size, channels, filter, pair(1, 3), padding, dilation)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=small_cases())
def test_random_configurations(cu32: DeviceEngine, case: Case) -> None:
    check(cu32, case)


@pytest.mark.parametrize("case", [*RESULTS, *INPUTS, *OUTPUTS], ids=str)
def test_no_zero_enters_a_multiply_add(cu32: DeviceEngine, case: Case) -> None:
    compute(cu32, case, np.float32)
    pairs = oracles.nonzero_products(case.size, case.filter, case.stride, case.padding, case.dilation)
    assert dict(MACS) == dict.fromkeys(MACS, pairs * case.n * case.channels[0] * case.channels[1])


def test_padding_is_never_multiplied(cu32: DeviceEngine) -> None:
    """An infinite gradient times a zero of padding would be NaN; in a filter's gradient the other taps stay finite."""
    case = Case(2, (6, 7), (3, 16), (3, 3), (1, 1), (1, 1))
    x, w, _, dy = (np.abs(array) for array in draw_data(case, np.float32))
    dy[:, 0, 0] = np.inf
    images, filters, grads = (alpha.tensor(array, engine=cu32) for array in (x, w, dy))
    dw = np.asarray(cu32.conv2d_weight_grad(images, grads, geometry_of(case), 1))
    assert np.isinf(dw[:, 1:, 1:]).all()
    assert np.isfinite(dw[:, 0]).all()
    assert np.isfinite(dw[:, :, 0]).all()
    assert not np.isnan(np.asarray(cu32.conv2d_input_grad(grads, filters, geometry_of(case), 1))).any()


@pytest.mark.parametrize("tile", few_channels.TILES["VECTOR"], ids=str)
@pytest.mark.parametrize("terms", [16, 100, 4096])
@pytest.mark.parametrize("case", [*INPUTS, *OUTPUTS], ids=str)
def test_every_tile_and_split_of_the_filter_gradient(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, tile: Tile, terms: int, case: Case
) -> None:
    monkeypatch.setattr(few_channels, "TILES", dict.fromkeys(few_channels.TILES, (tile,)))
    monkeypatch.setattr(few_channels, "LEAST_TERMS", terms)
    monkeypatch.setattr(few_channels, "MOST_TERMS", terms)
    x, w, _, dy = draw_data(case, np.float32)
    expected = oracles.conv2d_gradients(x, w, dy, case.stride, case.padding, case.dilation, 1)[1]
    images, grads = (alpha.tensor(array, engine=cu32).contiguous(IMAGE_ORDER) for array in (x, dy))
    forget()
    first, second = (np.asarray(cu32.conv2d_weight_grad(images, grads, geometry_of(case), 1)) for _ in "ab")
    forget()
    assert relative(first, expected) <= 1e-5
    assert np.array_equal(first, second)


def test_a_stem_fills_its_tiles() -> None:
    for inputs, filter, least in ((3, 3, 0.84), (3, 7, 0.91), (1, 3, 0.56)):
        columns = inputs * filter * filter
        tile = few_channels._tile(64, columns, "VECTOR")
        assert columns / (-(-columns // tile.columns) * tile.columns) >= least


@pytest.mark.parametrize("case", RESULTS[:5], ids=str)
def test_accumulates_and_adds_a_bias(cu32: DeviceEngine, case: Case) -> None:
    _, w, _, dy = draw_data(case, np.float32)
    rng = np.random.default_rng(5)
    before = rng.standard_normal((case.n, *case.size, case.channels[0])).astype(np.float32)
    bias = rng.standard_normal(case.channels[0]).astype(np.float32)
    dx, _ = oracles.conv2d_gradients(before, w, dy, case.stride, case.padding, case.dilation, 1)
    grads, filters, biases = (alpha.tensor(array, engine=cu32) for array in (dy, w, bias))
    into = alpha.tensor(before, engine=cu32).contiguous(IMAGE_ORDER)
    out = cu32.conv2d_input_grad(grads, filters, geometry_of(case), 1, biases, into)
    assert out is into
    assert relative(out, dx + before + bias) <= 1e-5


def test_filters_that_are_not_aligned(cu32: DeviceEngine) -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2, 4, 5, 20)).astype(np.float32)
    w = rng.standard_normal(3 * 9 * 20 + 1).astype(np.float32)
    filters = alpha.tensor(w, engine=cu32)[1:].reshape(3, 3, 3, 20)
    case = Case(2, (4, 5), (20, 3), (3, 3), (1, 1), (1, 1))
    y = cu32.conv2d(alpha.tensor(x, engine=cu32), filters, None, geometry_of(case), 1)
    assert relative(y, oracles.conv2d(x, w[1:].reshape(3, 3, 3, 20), (1, 1), (1, 1), (1, 1), 1)) <= 5e-6


def test_two_runs_are_the_same_to_the_bit(cu32: DeviceEngine) -> None:
    for case in (RESULTS[1], INPUTS[1]):
        first, second = (compute(cu32, case, np.float32) for _ in range(2))
        for one, other in zip(first, second, strict=True):
            assert np.array_equal(np.asarray(one), np.asarray(other))


def test_what_it_serves(cu32: DeviceEngine) -> None:
    """The picked configurations do run on these kernels."""
    everything = [*RESULTS, *INPUTS, *OUTPUTS]
    with taken(cuda_kit(cu32)) as names:
        for case in everything:
            compute(cu32, case, np.float32)
    assert names.count("few_channels") == len(everything)
    assert names.count("few_results") >= len(RESULTS)
    assert len(names) == 3 * len(everything) and set(names) == {"few_channels", "few_results", "tiles"}
