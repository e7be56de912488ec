"""The CPU engine's means over windows: past the caches and of large windows too, the same bits on any threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.cpu import pooling, streaming
from alpha.cpu.engine import CPUEngine
from alpha.engine import IMAGE_ORDER
from alpha.geometry import Axis, Geometry

ENGINES = [CPUEngine(threads=threads) for threads in (1, 3)]
WINDOWS = [(2, 2, 0), (3, 1, 1), (5, 3, 2), (7, 7, 0), (12, 12, 0), (9, 2, 4)]
"""Size, stride and padding."""


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_means(dtype: str, window: tuple[int, int, int], large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against sums in float64 from the definition, forward and backward, of images that lie in either order."""
    if large:
        monkeypatch.setattr(streaming, "STREAMED_BYTES", 0)
    size, stride, padding = window
    geometry = Geometry(*[Axis(n, size, stride, (padding, padding)) for n in (14, 12)])
    rng = np.random.default_rng(size)
    for images, channels in ((1, 3), (3, 16), (2, 64), (1, 1500)):
        x = rng.standard_normal((images, 14, 12, channels)).astype(dtype)
        wide = np.pad(x.astype(np.float64), ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        height, width = geometry.output
        dy = rng.standard_normal((images, height, width, channels)).astype(dtype)
        mean, grad = np.zeros(dy.shape), np.zeros(wide.shape)
        for i in range(height):
            for j in range(width):
                rows, columns = slice(i * stride, i * stride + size), slice(j * stride, j * stride + size)
                mean[:, i, j] = wide[:, rows, columns].sum((1, 2)) / size**2
                grad[:, rows, columns] += dy[:, None, None, i, j] / size**2
        inner = grad[:, padding : padding + 14, padding : padding + 12]
        for order in (None, IMAGE_ORDER):
            found = [_both(engine, x, dy, geometry, order) for engine in ENGINES]
            assert [one.tobytes() for one in found[0]] == [one.tobytes() for one in found[1]]
            for one, expected in zip(found[0], (mean, inner), strict=True):
                np.testing.assert_allclose(one, expected, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)
    pooling._plan.cache_clear()


def _both(engine: CPUEngine, x: Any, dy: Any, geometry: Geometry, order: Any) -> list[Any]:
    """The means, and the gradient, of images in an order of axes."""
    placed = []
    for array in (x, dy):
        image = engine.empty(array.shape, array.dtype, order)
        engine.copy(engine.from_numpy(array), image)
        placed.append(image)
    made = engine.avg_pool2d(placed[0], geometry, True), engine.avg_pool2d_grad(placed[1], geometry, True)
    return [np.ascontiguousarray(one.numpy()) for one in made]


def test_one_window_that_is_the_image() -> None:
    """It is a mean, of images in any order; with padding around it, it is not."""
    rng = np.random.default_rng(0)
    for shape in ((3, 5, 4, 7), (16, 28, 28, 64), (2, 2, 2, 3)):
        x = rng.standard_normal(shape).astype(np.float32)
        whole = Geometry(*[Axis(n, n, n) for n in shape[1:3]])
        padded = Geometry(*[Axis(n, n, n + 2, (1, 1)) for n in shape[1:3]])
        for order in (None, IMAGE_ORDER, (0, 3, 1, 2)):
            for engine in ENGINES:
                image = engine.empty(x.shape, x.dtype, order)
                engine.copy(engine.from_numpy(x), image)
                sums, size = x.astype(np.float64), np.prod(shape[1:3])
                for geometry, part in ((whole, sums), (padded, sums[:, : shape[1] - 1, : shape[2] - 1])):
                    found = engine.avg_pool2d(image, geometry, True).numpy()
                    np.testing.assert_allclose(found, part.sum((1, 2), keepdims=True) / size, rtol=0, atol=1e-6)
