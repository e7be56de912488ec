"""Tensors whose numbers have gaps between them in memory: the same results and gradients, in each of several calls.

The first call of an operation may be planned and noted, so that later ones take another way (``alpha.launches``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Engine, Tensor
from tests.engine.test_cpu_launches import forget_all

CALLS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "linear": (alpha.linear, [(8, 12), (10, 12), (10,)]),
    "linear of a row": (alpha.linear, [(1, 12), (10, 12), (10,)]),
    "matmul": (alpha.matmul, [(3, 8, 12), (12, 10)]),
    "dot": (alpha.dot, [(40,), (40,)]),
    "layer_norm": (lambda x, w, b: alpha.layer_norm(x, (6,), w, b), [(5, 6), (6,), (6,)]),
    "rms_norm": (lambda x, w: alpha.rms_norm(x, (6,), w), [(5, 6), (6,)]),
    "group_norm": (lambda x, w, b: alpha.group_norm(x, 2, w, b), [(3, 4, 4, 8), (8,), (8,)]),
    "batch_norm": (lambda x, w, b: alpha.batch_norm(x, None, None, w, b, training=True), [(3, 4, 4, 8), (8,), (8,)]),
    "conv2d": (lambda x, w, b: alpha.conv2d(x, w, b, padding=1), [(2, 5, 5, 4), (6, 3, 3, 4), (6,)]),
    "cross_entropy": (alpha.cross_entropy, [(7, 5), (7,)]),
    "nll_loss": (alpha.nll_loss, [(7, 5), (7,)]),
    "softmax": (lambda x: alpha.softmax(x, 1), [(4, 6, 3)]),
    "gather": (lambda x, n: alpha.gather(x, 1, n.reshape(7, 1)), [(7, 5), (7,)]),
    "index_select": (lambda x, n: alpha.index_select(x, 1, n), [(4, 5, 3), (7,)]),
    "embedding": (lambda w, n: alpha.embedding(n, w), [(5, 6), (7,)]),
    "max_pool2d": (lambda x: alpha.max_pool2d(x, 2), [(2, 6, 6, 4)]),
    "avg_pool2d": (lambda x: alpha.avg_pool2d(x, 2), [(2, 6, 6, 4)]),
    "var": (lambda x: alpha.var(x, 1), [(4, 6, 3)]),
    "cumsum": (lambda x: alpha.cumsum(x, 1), [(4, 6, 3)]),
    "where": (lambda x, y: alpha.where(x > 0, x, y), [(4, 6), (4, 6)]),
    "concat": (lambda x, y: alpha.concat([x, y], 0), [(4, 6), (2, 6)]),
}
"""Operations with the shapes of their tensors."""

LAST_ARE_INDICES = {"cross_entropy", "nll_loss", "gather", "index_select", "embedding"}
"""Those whose last tensor has indices, below 5."""


def lying(values: Any, axis: int | None, engine: Engine) -> Tensor:
    """A leaf of the values whose memory has a gap behind each number along an axis, or none."""
    if axis is None:
        found = alpha.tensor(values, engine=engine)
    else:
        wide = np.repeat(values, 2, axis)
        part = tuple([slice(None)] * axis + [slice(None, None, 2)])
        wide[tuple([slice(None)] * axis + [slice(1, None, 2)])] = 3
        found = alpha.tensor(wide, engine=engine)[part]
    return found.detach().requires_grad_() if values.dtype == np.float32 else found


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_read_tensors_with_gaps_as_the_first(engine: Engine, name: str) -> None:
    """Each tensor in turn, along each axis; results and gradients, whose own gradients have gaps too."""
    call, shapes = CALLS[name]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if name in LAST_ARE_INDICES:
        given[-1] = rng.integers(0, 5, shapes[-1])

    def computed(gap: tuple[int, int] | None) -> list[Any]:
        axes = [gap[1] if gap is not None and gap[0] == k else None for k in range(len(given))]
        tensors = [lying(values, axis, engine) for values, axis in zip(given, axes, strict=True)]
        y = call(*tensors)
        dy = np.linspace(-1, 1, y.numel(), dtype=np.float32).reshape(y.shape)
        y.backward(lying(dy, None if gap is None or y.ndim == 0 else y.ndim - 1, engine).detach())
        return [y.detach().to("cpu").numpy(), *[x.grad.to("cpu").numpy() for x in tensors if x.grad is not None]]

    expected = computed(None)
    for gap in [(k, axis) for k, values in enumerate(given) for axis in range(values.ndim)]:
        forget_all()
        for _ in range(3):
            for found, wanted in zip(computed(gap), expected, strict=True):
                np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
