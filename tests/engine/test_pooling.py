"""Pooling: brute force from the definition, PyTorch, gradients, NaN and padding, errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.functions as F
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.testing import assert_close, gradcheck
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]

# kernel, stride, padding, dilation, ceil_mode
MAXIMA: list[tuple[Pair, Pair, Pair, Pair, bool]] = [
    ((2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 2), (2, 1), (1, 1), (1, 1), False),
    ((3, 3), (2, 2), (1, 1), (1, 1), True),
    ((2, 3), (3, 2), (1, 0), (2, 1), True),
    ((1, 1), (1, 1), (0, 0), (1, 1), False),
    ((1, 1), (3, 2), (0, 0), (1, 1), True),
    ((4, 5), (1, 3), (2, 2), (1, 2), False),
    ((7, 9), (1, 1), (0, 0), (1, 1), False),
    ((2, 2), (5, 5), (1, 1), (1, 1), True),
]
SIZES = [(3, 7, 9, 5), (1, 11, 10, 1), (2, 8, 9, 3)]


def image(engine: Engine, values: Array, order: tuple[int, ...] | None = IMAGE_ORDER) -> alpha.Tensor:
    out = engine.empty(values.shape, values.dtype, order)
    engine.copy(engine.from_numpy(values), out)
    return out


def output_size(size: int, k: int, s: int, p: int, d: int, ceil: bool) -> int:
    """PyTorch's rule, from its documentation."""
    room = (size + 2 * p - d * (k - 1) - 1) / s
    out = (math.ceil(room) if ceil else math.floor(room)) + 1
    return out - 1 if ceil and (out - 1) * s >= size + p else out


def windows(x: Array, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil: bool) -> Any:
    """(output row, column), the (N, C) elements inside the image under each window, and how many the padding adds."""
    spans = []
    for size, k, s, p, d in zip(x.shape[1:3], kernel, stride, padding, dilation, strict=True):
        outputs = range(output_size(size, k, s, p, d, ceil))
        spans.append([[o * s - p + f * d for f in range(k) if o * s - p + f * d < size + p] for o in outputs])
    for (i, rows), (j, columns) in itertools.product(enumerate(spans[0]), enumerate(spans[1])):
        inside = [(r, c) for r in rows for c in columns if 0 <= r < x.shape[1] and 0 <= c < x.shape[2]]
        yield i, j, [x[:, r, c] for r, c in inside], len(rows) * len(columns)


def reference(x: Array, make: Callable[[list[Array], int], Array], *window: Any) -> Array:
    found = {(i, j): make(values, full) for i, j, values, full in windows(x, *window)}
    height, width = (1 + max(key[axis] for key in found) for axis in (0, 1))
    out = np.empty((x.shape[0], height, width, x.shape[3]), x.dtype)
    for (i, j), value in found.items():
        out[:, i, j] = value
    return out


def largest(values: list[Array], full: int) -> Array:
    return np.max(values, axis=0) if values else np.array(-np.inf)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("window", MAXIMA)
def test_max_pool2d_is_the_definition(
    engine: Engine, rng: np.random.Generator, window: Any, size: tuple[int, ...], dtype: str
) -> None:
    x = rng.standard_normal(size).astype(dtype)
    if any(size[1 + a] + 2 * window[2][a] < (window[0][a] - 1) * window[3][a] + 1 for a in (0, 1)):
        pytest.skip("the window is larger than this image")
    expected = reference(x, largest, *window)
    for order in (IMAGE_ORDER, None, (3, 0, 2, 1)):
        out = F.max_pool2d(image(engine, x, order), *window)
        assert np.array_equal(out.numpy(), expected)
        with_taps = F.max_pool2d(image(engine, x, order).requires_grad_(), *window)
        assert np.array_equal(with_taps.detach().numpy(), expected)
    assert out.is_contiguous(IMAGE_ORDER) and out.dtype == np.dtype(dtype)


@pytest.mark.parametrize("window", MAXIMA)
def test_max_pool2d_gradient(engine: Engine, rng: np.random.Generator, window: Any) -> None:
    x = rng.permutation(2 * 8 * 9 * 3).reshape(2, 8, 9, 3) / 1000  # all different: no kink within eps
    assert gradcheck(lambda t: F.max_pool2d(t, *window), image(engine, x))


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("window", [w for w in MAXIMA if w[3] == (1, 1)])
def test_avg_pool2d_is_the_definition(
    engine: Engine, rng: np.random.Generator, window: Any, size: tuple[int, ...], dtype: str, count: bool
) -> None:
    x = rng.standard_normal(size)
    if any(size[1 + a] + 2 * window[2][a] < window[0][a] for a in (0, 1)):
        pytest.skip("the window is larger than this image")
    kernel, stride, padding, _, ceil = window

    def mean(values: list[Array], full: int) -> Array:
        return np.asarray(np.sum(values, axis=0) / (full if count else len(values)))

    expected = reference(x, mean, *window)
    for order in (IMAGE_ORDER, None):
        out = F.avg_pool2d(image(engine, x.astype(dtype), order), kernel, stride, padding, ceil, count)
        # A mean of at most 63 elements around 1: some roundings of the dtype.
        assert_close(out, expected, rtol=0, atol=1e-6 if dtype == "float32" else 1e-14)
    assert out.is_contiguous(IMAGE_ORDER) and out.dtype == np.dtype(dtype)


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("window", [w for w in MAXIMA if w[3] == (1, 1)])
def test_avg_pool2d_gradient(engine: Engine, rng: np.random.Generator, window: Any, count: bool) -> None:
    kernel, stride, padding, _, ceil = window
    x = image(engine, rng.standard_normal((2, 8, 9, 3)))
    assert gradcheck(lambda t: F.avg_pool2d(t, kernel, stride, padding, ceil, count), x)


@pytest.mark.parametrize("output", [1, (1, 1), (3, 2), (7, 9), (5, 4), (2, None), (9, 3), (7, 20)])
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
def test_adaptive_avg_pool2d_is_the_definition(
    engine: Engine, rng: np.random.Generator, output: Any, dtype: str
) -> None:
    x = rng.standard_normal((3, 7, 9, 5))
    height, width = output if isinstance(output, tuple) else (output, output)
    height, width = height or 7, width or 9
    expected = np.empty((3, height, width, 5))
    for i, j in itertools.product(range(height), range(width)):
        rows = slice(i * 7 // height, -(-(i + 1) * 7 // height))
        columns = slice(j * 9 // width, -(-(j + 1) * 9 // width))
        expected[:, i, j] = x[:, rows, columns].mean(axis=(1, 2))
    out = F.adaptive_avg_pool2d(image(engine, x.astype(dtype)), output)
    assert out.dtype == np.dtype(dtype)
    assert_close(out, expected, rtol=0, atol=1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize("output", [1, (3, 2), (5, 4), (7, 3)])
def test_adaptive_avg_pool2d_gradient(engine: Engine, rng: np.random.Generator, output: Any) -> None:
    assert gradcheck(lambda t: F.adaptive_avg_pool2d(t, output), image(engine, rng.standard_normal((2, 7, 9, 4))))


def test_an_infinity_stays_within_its_windows(engine: Engine) -> None:
    x = np.ones((1, 5, 5, 1))
    x[0, 0, 0, 0] = np.inf
    out = F.adaptive_avg_pool2d(image(engine, x), (3, 2)).numpy()[0, :, :, 0]
    assert np.isinf(out[0, 0]) and np.isfinite(np.delete(out.reshape(-1), 0)).all()


def test_nan_wins_and_padding_never_does(engine: Engine) -> None:
    x = np.full((2, 4, 4, 1), -np.inf)
    x[0] = -5.0
    x[0, 1, 1, 0] = np.nan
    tensor = image(engine, x).requires_grad_()
    out = F.max_pool2d(tensor, 3, 1, 1)
    np.testing.assert_array_equal(F.max_pool2d(tensor.detach(), 3, 1, 1).numpy(), out.detach().numpy())
    nan = np.isnan(out.detach().numpy()[0, :, :, 0])
    assert nan[:3, :3].all() and not nan[3].any() and not nan[:, 3].any()
    assert (out.detach().numpy()[0, 3] == -5).all() and (out.detach().numpy()[1] == -np.inf).all()
    out.backward(engine.from_numpy(np.ones(out.shape)))
    grad = tensor.grad.numpy()  # type: ignore[union-attr]
    assert grad[0, 1, 1, 0] == 9 and grad[1].sum() == 16


def test_a_window_of_padding_alone_is_minus_infinity_and_takes_no_gradient(engine: Engine) -> None:
    x = image(engine, np.ones((1, 1, 1, 2))).requires_grad_()
    out = F.max_pool2d(x, 2, 1, 1, dilation=2)
    assert (out.detach().numpy() == -np.inf).all()
    assert (F.max_pool2d(x.detach(), 2, 1, 1, dilation=2).numpy() == -np.inf).all()
    out.backward(engine.from_numpy(np.ones(out.shape)))
    assert not x.grad.numpy().any()  # type: ignore[union-attr]


def test_ties_go_to_the_first(engine: Engine) -> None:
    x = image(engine, np.zeros((1, 2, 4, 1))).requires_grad_()
    F.max_pool2d(x, 2).sum().backward()
    assert x.grad.numpy()[0, :, :, 0].tolist() == [[1, 0, 1, 0], [0, 0, 0, 0]]  # type: ignore[union-attr]


def test_images_without_rows_or_channels(engine: Engine) -> None:
    for size in ((0, 4, 4, 3), (2, 4, 4, 0)):
        x = image(engine, np.zeros(size, np.float32)).requires_grad_()
        out = F.max_pool2d(x, 2) + F.avg_pool2d(x, 2)
        out.sum().backward()
        assert out.shape == (size[0], 2, 2, size[3]) and x.grad.shape == size  # type: ignore[union-attr]


def nchw(torch: Any, x: Array) -> Any:
    return torch.tensor(x.transpose(0, 3, 1, 2).copy(), requires_grad=True)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("window", MAXIMA)
def test_maxima_and_means_are_pytorchs(
    engine: Engine, rng: np.random.Generator, window: Any, size: tuple[int, ...]
) -> None:
    import torch

    nn = torch.nn.functional
    kernel, stride, padding, dilation, ceil = window
    if any(size[1 + a] + 2 * padding[a] < (kernel[a] - 1) * dilation[a] + 1 for a in (0, 1)):
        pytest.skip("the window is larger than this image")
    x = rng.integers(-3, 3, size).astype(np.float64)  # with ties
    pairs = [(F.max_pool2d, nn.max_pool2d, (dilation, ceil))]
    if dilation == (1, 1):
        pairs += [(F.avg_pool2d, nn.avg_pool2d, (ceil, count)) for count in (True, False)]
    for ours, theirs, rest in pairs:
        a, b = image(engine, x).requires_grad_(), nchw(torch, x)
        out, expected = ours(a, kernel, stride, padding, *rest), theirs(b, kernel, stride, padding, *rest)
        assert_close(out, expected.detach().numpy().transpose(0, 2, 3, 1), rtol=0, atol=1e-14)
        grad = rng.standard_normal(out.shape)
        out.backward(engine.from_numpy(grad))
        expected.backward(torch.tensor(grad.transpose(0, 3, 1, 2).copy()))
        assert_close(a.grad, b.grad.numpy().transpose(0, 2, 3, 1), rtol=0, atol=1e-14)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("output", [1, (3, 2), (7, 9), (5, 4), (2, None)])
def test_adaptive_means_are_pytorchs(engine: Engine, rng: np.random.Generator, output: Any) -> None:
    import torch

    x = rng.standard_normal((3, 7, 9, 5))
    a, b = image(engine, x).requires_grad_(), nchw(torch, x)
    out, expected = F.adaptive_avg_pool2d(a, output), torch.nn.functional.adaptive_avg_pool2d(b, output)
    assert_close(out, expected.detach().numpy().transpose(0, 2, 3, 1), rtol=0, atol=1e-14)
    grad = rng.standard_normal(out.shape)
    out.backward(engine.from_numpy(grad))
    expected.backward(torch.tensor(grad.transpose(0, 3, 1, 2).copy()))
    assert_close(a.grad, b.grad.numpy().transpose(0, 2, 3, 1), rtol=0, atol=1e-14)


ERRORS: list[tuple[Callable[[alpha.Tensor], Any], type[Exception], str]] = [
    (lambda x: F.max_pool2d(x[0, 0], 2), ShapeError, r"^\[max_pool2d\] expected images \(N, H, W, C\), got \(5, 3\)"),
    (lambda x: F.avg_pool2d(x[0, 0], 2), ShapeError, r"^\[avg_pool2d\] expected images"),
    (lambda x: F.adaptive_avg_pool2d(x[0, 0], 2), ShapeError, r"^\[adaptive_avg_pool2d\] expected images"),
    (
        lambda x: F.max_pool2d(x.long(), 2),
        DtypeError,
        r"^\[max_pool2d\] expected a float32 or float64 tensor, got int64",
    ),
    (lambda x: F.max_pool2d(np.zeros((1, 4, 4, 1)), 2), DtypeError, r"^\[max_pool2d\] .* got ndarray"),  # type: ignore[arg-type]
    (
        lambda x: F.max_pool2d(x, 0),
        ArgumentError,
        r"^\[max_pool2d\] expected kernel_size as an int or a pair of them >= 1",
    ),
    (lambda x: F.max_pool2d(x, (2, 2, 2)), ArgumentError, r"^\[max_pool2d\] expected kernel_size"),
    (lambda x: F.max_pool2d(x, 2.5), ArgumentError, r"^\[max_pool2d\] expected kernel_size .* got 2.5"),  # type: ignore[arg-type]
    (lambda x: F.max_pool2d(x, 2, 0), ArgumentError, r"^\[max_pool2d\] expected stride"),
    (
        lambda x: F.max_pool2d(x, 2, 1, -1),
        ArgumentError,
        r"^\[max_pool2d\] expected padding as an int or a pair of them >= 0",
    ),
    (lambda x: F.max_pool2d(x, 2, 1, 2), ArgumentError, r"^\[max_pool2d\] expected a padding of at most half"),
    (lambda x: F.avg_pool2d(x, 3, 1, (1, 2)), ArgumentError, r"^\[avg_pool2d\] expected a padding of at most half"),
    (lambda x: F.max_pool2d(x, 2, dilation=0), ArgumentError, r"^\[max_pool2d\] expected dilation"),
    (lambda x: F.max_pool2d(x, 6), ShapeError, r"^\[max_pool2d\] expected windows that fit .*\(2, 4, 5, 3\)"),
    (lambda x: F.adaptive_avg_pool2d(x, 0), ArgumentError, r"^\[adaptive_avg_pool2d\] expected output_size"),
    (lambda x: F.adaptive_avg_pool2d(x, (1, 2, 3)), ArgumentError, r"^\[adaptive_avg_pool2d\] expected output_size"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_wrong_arguments_say_so(
    engine: Engine, call: Callable[[alpha.Tensor], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        call(image(engine, np.zeros((2, 4, 5, 3), np.float32)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [alpha.bfloat16, alpha.float16])
@pytest.mark.parametrize(
    ("shape", "window"), [((2, 9, 7, 5), (3, 2, 1)), ((3, 8, 8, 64), (2, 2, 0)), ((1, 5, 6, 17), (3, 1, 1))]
)
def test_maxima_of_halves_are_those_of_their_numbers(
    shape: tuple[int, ...], window: tuple[int, int, int], dtype: Any, engine: Engine
) -> None:
    """The same of equal ones is chosen; sums of gradients are float32, and rounded once, but for NumPy's."""
    rng = np.random.default_rng(0)
    numbers = (np.round(4 * rng.standard_normal(shape)) / 4).astype(np.float32)
    x = alpha.tensor(numbers, engine=engine)
    given = x.detach().requires_grad_(), x.to(dtype).requires_grad_()
    results = [F.max_pool2d(one, *window) for one in given]
    assert results[1].dtype == dtype
    np.testing.assert_array_equal(results[1].detach().float().numpy(), results[0].detach().numpy())
    dy = alpha.tensor(rng.standard_normal(results[0].shape).astype(np.float32), engine=engine).to(dtype)
    results[0].backward(dy.float())
    results[1].backward(dy)
    assert given[0].grad is not None and given[1].grad is not None and given[1].grad.dtype == dtype
    error = 2.0**-7 if engine.name == "numpy" else 0.0
    np.testing.assert_allclose(given[1].grad.float().numpy(), given[0].grad.to(dtype).float().numpy(), error, 4 * error)


def test_a_nan_among_halves_is_the_largest(engine: Engine) -> None:
    numbers = np.zeros((1, 4, 4, 40), np.float32)
    numbers[0, 1, 1, ::3] = np.nan
    y = F.max_pool2d(alpha.tensor(numbers, engine=engine).to(alpha.bfloat16), 2).float().numpy()
    np.testing.assert_array_equal(np.isnan(y[0, 0, 0]), np.arange(40) % 3 == 0)
    assert np.isfinite(y[0, 1]).all()
