"""What is done to samples: dropout, and the loader's images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import random
from alpha.composed.arrays import copied
from alpha.dtypes import bool_
from alpha.expressions import dropout as expression

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.tensor import Tensor


def dropout(engine: Engine, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
    """The random numbers are made on the host."""
    kept = random.uniforms(seed, offset, x.numel()).reshape(x.shape) >= p
    mask = copied(engine, engine.from_numpy(kept), bool_, x.memory_order())
    return engine.pointwise("dropout", expression.KEPT, (x, mask), (expression.scale(p),))[0], mask


def images_to_float(
    engine: Engine,
    images: Tensor,
    places: Tensor,
    size: tuple[int, int],
    mean: np.ndarray[Any, Any],
    divisor: np.ndarray[Any, Any],
) -> Tensor:
    """Whole batches by NumPy's indexing, on the host."""
    pixels, (tops, lefts, steps) = engine.to_numpy(images), engine.to_numpy(places).T[..., None]
    _, height, width, _ = pixels.shape
    rows, columns = tops + np.arange(size[0]), lefts + steps * np.arange(size[1])
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    clipped = rows.clip(0, height - 1)[:, :, None], columns.clip(0, width - 1)[:, None, :]
    taken = np.where(inside[..., None], pixels[np.arange(len(pixels))[:, None, None], *clipped], 0)
    return engine.from_numpy((taken.astype(np.float32) - mean) / divisor)
