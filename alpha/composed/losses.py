"""Cross entropy and its gradient, from their definitions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from alpha.composed.arrays import cast, filled, numbers
from alpha.dtypes import float64
from alpha.errors import ShapeError
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.records import RangeCheck


def cross_entropy(engine: Engine, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """log(sum(exp(x - max))) - (x[label] - max), in float64."""
    _check("cross_entropy", logits, labels)
    do = engine.elementwise
    rows, classes = logits.shape
    shifted = cast(engine, do("sub", logits, engine.reduce("max", logits, (1,), True)), float64)
    powers = do("exp", shifted)
    total = engine.reduce("sum", powers, (1,), True)
    valid = do("logical_and", do("ge", labels, 0), do("lt", labels, classes))
    followed = do("where", valid, labels, 0)
    target = engine.gather(shifted, (engine.from_numpy(np.arange(rows)), followed))
    if smoothing != 0:
        mean = do("div", engine.reduce("sum", shifted, (1,), False), classes)
        target = do("add", do("mul", target, 1 - smoothing), do("mul", mean, smoothing))
    logs = do("log", total.strided(total.offset, total.shape[:1], total.strides[:1]))
    losses = do("where", valid, do("sub", logs, target), math.nan)
    return cast(engine, losses, logits.dtype), cast(engine, do("div", powers, total), logits.dtype)


def cross_entropy_grad(
    engine: Engine, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float
) -> Tensor:
    """An infinite scale is inf - inf at the label, as PyTorch's, which scales each term by itself."""
    _check("cross_entropy_grad", probabilities, labels)
    if scale.shape != labels.shape:
        raise ShapeError(f"[cross_entropy_grad] expected one scale per row, {labels.shape}, got {scale.shape}")
    do = engine.elementwise
    classes = probabilities.shape[1]
    label, factor = _column(labels), _column(scale)
    others = do("sub", probabilities, smoothing / classes)
    hot = do("add", do("mul", do("sub", others, 1 - smoothing), factor), do("sub", factor, factor))
    is_label = do("eq", label, engine.from_numpy(np.arange(classes)))
    return do("where", is_label, hot, do("mul", others, factor))


def cross_entropy_loss_grad(
    engine: Engine, grad: Tensor, probabilities: Tensor, followed: Tensor, factor: Tensor, smoothing: float
) -> Tensor:
    """That of every row's loss; rows with the label -1 get zeros."""
    do = engine.elementwise
    scale = do("mul", do("mul", grad, factor), filled(engine, followed.shape, 1, grad.dtype))
    kept = do("ge", followed, 0)
    found = engine.cross_entropy_grad(probabilities, do("where", kept, followed, 0), scale, smoothing)
    return do("where", _column(kept), found, 0.0)


def nll_loss(
    engine: Engine, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str, check: RangeCheck
) -> tuple[Tensor, Tensor, Tensor | float]:
    """The labels are checked first, and then followed; those of rows to ignore are -1 for the gradient."""
    do = engine.elementwise
    followed, may_be_ignored = engine.check_labels(labels, rows.shape[1], check, ignore_index)
    values = engine.gather(rows, (numbers(engine, rows.shape[0]), followed))
    values = do("neg", values, out=values)
    count: Tensor | float = float(rows.shape[0])
    if may_be_ignored:
        kept = do("ne", labels, ignore_index)
        values, followed = do("where", kept, values, 0.0), do("where", kept, followed, -1)
        count = engine.reduce("sum", cast(engine, kept, rows.dtype), (0,), False)
    if reduction == "none":
        return values, followed, 1.0
    total = engine.reduce("sum", values, (0,), False)
    if reduction == "sum":
        return total, followed, 1.0
    factor = do("reciprocal", count) if isinstance(count, Tensor) else 1 / count if count else math.nan
    return do("div", total, count), followed, factor


def nll_loss_grad(engine: Engine, grad: Tensor, followed: Tensor, factor: Tensor | float, classes: int) -> Tensor:
    """Zeros, but for the labels' places."""
    do = engine.elementwise
    (rows,) = followed.shape
    out = filled(engine, (rows, classes), 0, grad.dtype)
    if rows:
        kept = do("ge", followed, 0)
        values = do("where", kept, do("neg", do("mul", grad, factor)), 0.0)
        engine.scatter(out, (numbers(engine, rows), do("where", kept, followed, 0)), values, accumulate=False)
    return out


def _column(x: Tensor) -> Tensor:
    """A vector as a matrix of one column."""
    return x.strided(x.offset, (*x.shape, 1), (*x.strides, 1))


def _check(function: str, rows: Tensor, labels: Tensor) -> None:
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or (rows.shape[0] and not rows.shape[1]):
        raise ShapeError(
            f"[{function}] expected rows (N, C), C >= 1, and labels (N,), got {rows.shape} and {labels.shape}"
        )
