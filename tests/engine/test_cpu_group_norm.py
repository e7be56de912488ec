"""Group norm's kernels on the CPU engine: any layout, the same bits for any number of threads, errors of rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cpu import group_norm
from alpha.cpu.engine import CPUEngine
from alpha.engine import IMAGE_ORDER
from alpha.launches import GROUP_NORM
from tests.tiers import FLOATS

Array = np.ndarray[Any, Any]

CASES = [
    ((3, 7, 5, 64), 2),
    ((2, 9, 11, 192), 96),  # more positions than are summed at a time
    ((2, 3, 4, 70), 14),
    ((1, 70, 3, 33), 33),  # a group is a channel
    ((5, 40, 17), 1),
    ((32, 3, 2, 160), 10),  # as images, some samples are one task
    ((3, 5, 1, 48), 3),  # an axis of length 1 between samples and channels
    ((6, 64), 4),  # one position
    ((2, 6, 5, 3), 3),  # few channels
    ((4, 3, 3, 2), 1),
    ((5, 4, 1), 1),  # one channel
]
LAYOUTS = [None, "images", "columns"]


def gradients(engine: CPUEngine, arrays: list[Array], groups: int, layout: str | None) -> list[Array]:
    """The result, and the gradients of x, weight and bias; the last array is the result's gradient."""
    x, weight, bias, dy = (alpha.tensor(array, engine=engine) for array in arrays)
    if layout == "images" and x.ndim == 4:
        x = x.contiguous(IMAGE_ORDER)
    elif layout == "columns":
        x, dy = (t.contiguous(tuple(range(t.ndim))[::-1]) for t in (x, dy))
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    y = alpha.group_norm(x, groups, weight, bias)
    y.backward(dy)
    return [y.detach().numpy(), *[t.grad.numpy() for t in inputs if t.grad is not None]]


def expected(arrays: list[Array], groups: int) -> list[Array]:
    """PyTorch's, in float64."""
    import torch

    x, weight, bias, dy = (torch.tensor(array.astype(np.float64)) for array in arrays)
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    y = torch.nn.functional.group_norm(x.movedim(-1, 1), groups, weight, bias).movedim(1, -1)
    y.backward(dy)
    return [y.detach().numpy(), *[t.grad.numpy() for t in inputs if t.grad is not None]]


def test_images_keep_their_memory_order() -> None:
    for shape in ((2, 3, 4, 32), (2, 3, 1, 32), (1, 3, 4, 32), (2, 1, 1, 32)):
        x = alpha.ones(shape, engine=CPUEngine("256MB")).contiguous(IMAGE_ORDER)
        assert alpha.group_norm(x, 2).is_contiguous(IMAGE_ORDER)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "groups"), CASES, ids=str)
def test_values_gradients_and_bits(rng: np.random.Generator, shape: tuple[int, ...], groups: int, dtype: Any) -> None:
    x, dy = rng.normal(3, 2, shape).astype(dtype), rng.normal(size=shape).astype(dtype)
    arrays = [x, *(rng.normal(size=shape[-1]).astype(dtype) for _ in range(2)), dy]
    wanted = expected(arrays, groups)
    # Sums as trees, then float64: their rounding errors, on results below 10 times the largest number.
    bound = 64 * np.finfo(dtype).eps
    for layout in LAYOUTS:
        found = [gradients(CPUEngine("256MB", threads=threads), arrays, groups, layout) for threads in (1, 2, 5)]
        for got, want, *others in zip(found[0], wanted, *found[1:], strict=True):
            assert got.dtype == dtype and np.abs(got - want).max() <= bound * np.abs(want).max()
            assert all(np.array_equal(got, other) for other in others)


def test_what_is_written_past_the_caches_has_the_same_bits(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((17, 9, 8, 48), (48,), (48,), (17, 9, 8, 48))]
    for layout in LAYOUTS:
        found = []
        for least in (group_norm.STREAMED_BYTES, 0):
            monkeypatch.setattr(group_norm, "STREAMED_BYTES", least)
            GROUP_NORM.forget()
            group_norm._plan.cache_clear()
            found.append(gradients(CPUEngine("256MB", threads=2), arrays, 3, layout))
        assert all(np.array_equal(*pair) for pair in zip(*found, strict=True))
    group_norm._plan.cache_clear()
    GROUP_NORM.forget()


def test_a_large_mean_does_not_cancel(rng: np.random.Generator) -> None:
    x = (rng.standard_normal((2, 6, 5, 64)) + 1000).astype(np.float32)
    parts = x.astype(np.float64).reshape(2, 30, 4, 16)
    wanted = (parts - parts.mean((1, 3), keepdims=True)) / np.sqrt(parts.var((1, 3), keepdims=True) + 1e-5)
    got = alpha.group_norm(alpha.tensor(x, engine=CPUEngine("256MB")), 4).numpy()
    np.testing.assert_allclose(got, wanted.reshape(x.shape), rtol=1e-6, atol=1e-6)


def test_first_rows_unlike_the_others_lose_no_digits(rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 60, 60, 32)).astype(np.float32)
    x[:, :1] += 3000  # what deviations are taken from first
    parts = x.astype(np.float64).reshape(1, 3600, 4, 8)
    wanted = (parts - parts.mean((1, 3), keepdims=True)) / np.sqrt(parts.var((1, 3), keepdims=True) + 1e-5)
    got = alpha.group_norm(alpha.tensor(x, engine=CPUEngine("256MB")), 4).numpy()
    np.testing.assert_allclose(got, wanted.reshape(x.shape), rtol=2e-6, atol=2e-6)


def test_what_is_not_finite_spoils_only_its_group() -> None:
    x = np.full((2, 4, 4, 32), 1 / 3, np.float32)
    x[1, 0, 0, 0] = np.inf
    y = alpha.group_norm(alpha.tensor(x, engine=CPUEngine("256MB")), 4).numpy()
    assert np.isnan(y[1, ..., :8]).all()
    assert not y[0].any() and not y[1, ..., 8:].any()  # equal numbers are their mean


def test_running_statistics_of_wide_images(rng: np.random.Generator) -> None:
    x = rng.normal(3, 2, (3, 5, 4, 32)).astype(np.float32)
    engine = CPUEngine("256MB")
    mean, var = alpha.zeros(32, engine=engine), alpha.ones(32, engine=engine)
    alpha.instance_norm(alpha.tensor(x, engine=engine), mean, var, momentum=0.25)
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var((1, 2), ddof=1).mean(0), rtol=1e-5)
