"""Loss functions: cross entropy, negative log likelihood, squared, absolute and binary errors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from alpha.arguments import whole
from alpha.autograd import Function, edges_of
from alpha.dtypes import default_int, float_names, is_float
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import PointwiseFunction, pointwise
from alpha.functions import elementwise
from alpha.functions.activation import log_softmax
from alpha.functions.elementwise import where
from alpha.functions.images import of_images
from alpha.functions.indexing import Gather
from alpha.functions.operands import call, numbers
from alpha.functions.reduction import mean
from alpha.functions.shape import reshape
from alpha.launches import NLL_LOSS
from alpha.tensor import Tensor

_NUMBERS = (int, float, np.integer, np.floating)

__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "l1_loss", "mse_loss", "nll_loss"]


class CrossEntropy(Function):
    """A row's -log softmax(logits)[label], softmax kept for the gradient."""

    fresh = True

    smoothing: float

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """The rows' losses, in the graph where the logits are."""
        engine, edges = logits.storage.engine, edges_of((logits,))
        if edges is None:
            return engine.cross_entropy_losses(logits, labels, smoothing)
        losses, probabilities = engine.cross_entropy(logits, labels, smoothing)
        function = cls()
        function.smoothing = smoothing
        return function.record(edges, [probabilities, labels], losses)

    def backward(self, grad: Tensor) -> Tensor:
        probabilities, labels = self.saved
        return grad.engine.cross_entropy_grad(probabilities, labels, grad, self.smoothing)


class NegativeLogLikelihood(Function):
    """Each row's -x[label], or their sum or mean."""

    fresh = True

    factor: Tensor | float
    classes: int

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str, check: RangeCheck) -> Tensor:
        """The loss, in the graph where the rows are."""
        edges = edges_of((rows,))
        loss, followed, factor = rows.storage.engine.nll_loss(rows, labels, ignore_index, reduction, check)
        if edges is None:
            return loss
        function = cls()
        function.factor, function.classes = factor, rows.shape[1]
        return function.record(edges, [followed], loss)

    def backward(self, grad: Tensor) -> Tensor:
        (followed,) = self.saved
        return grad.engine.nll_loss_grad(grad, followed, self.factor, self.classes)


@pointwise
def _squared_error(x, target):  # type: ignore[no-untyped-def]
    difference = x - target
    return difference * difference


@pointwise
def _absolute_error(x, target):  # type: ignore[no-untyped-def]
    return abs(x - target)


def _softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return elementwise.log1p(elementwise.exp(-abs(x))) + elementwise.maximum(x, 0.0)


def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)): 0 where exp(-x) overflows, as in PyTorch, so that an infinite gradient gives NaN there."""
    return 1 / (1 + elementwise.exp(-x))


@pointwise
def _binary_cross_entropy(x, y):  # type: ignore[no-untyped-def]
    """(1 - y) x + softplus(-x): finite for every finite x."""
    return (1 - y) * x + _softplus(-x)


@_binary_cross_entropy.gradient
def _(grad, x, y):  # type: ignore[no-untyped-def]
    return grad * (_sigmoid(x) - y), grad * -x


@pointwise
def _weighted_binary_cross_entropy(x, y, weight):  # type: ignore[no-untyped-def]
    """(1 - y) x + (1 + (w - 1) y) softplus(-x), with w the positive class's weight, which takes no gradient."""
    return (1 - y) * x + (1 + (weight - 1) * y) * _softplus(-x)


@_weighted_binary_cross_entropy.gradient
def _(grad, x, y, weight):  # type: ignore[no-untyped-def]
    wanted = weight * y
    dx = grad * ((wanted + 1 - y) * _sigmoid(x) - wanted)
    return dx, grad * (weight * _softplus(-x) - _softplus(x)), None


@pointwise
def _row_loss(loss):  # type: ignore[no-untyped-def]
    return +loss


@pointwise
def _counted(loss, kept):  # type: ignore[no-untyped-def]
    """Not a product: the loss of an ignored row may be infinite."""
    return elementwise.where(kept != 0, loss, 0.0)


@of_images("logits", moves=False)
def cross_entropy(
    logits: Tensor,
    target: Tensor,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    weight: Tensor | None = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """-log softmax(logits)[target], softmax over the last axis.

    Classes come last, as all channels here do (PyTorch has them at axis 1).

    Args:
        logits: (N, C), or (..., C).
        target: (N,), or (...), int64 class indices; rows whose target is ``ignore_index`` count nothing.
        reduction: "mean" over the rows (weighted by their target's weight), "sum", or "none": losses as target's shape.
        label_smoothing: e in 0..1; the target distribution is (1 - e) * onehot + e / C.
        weight: (C,), a factor for each class.
    """
    name = "cross_entropy"
    if not isinstance(label_smoothing, _NUMBERS) or not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"[{name}] expected label_smoothing in 0..1, got {described(label_smoothing)}")
    label_smoothing = float(label_smoothing)
    _check_classes(name, logits, target, reduction, weight)
    rows, labels, kept = _rows(name, logits, target, ignore_index)
    losses: Tensor
    if weight is not None and label_smoothing > 0:
        log_p = log_softmax(rows, -1)
        smooth = -(log_p * weight).sum(-1) * (label_smoothing / rows.shape[1])
        losses = (1 - label_smoothing) * (_picked(log_p, labels) * -_of_class(weight, labels, kept)) + smooth
    else:
        losses = CrossEntropy.of(rows, labels, label_smoothing)
        if weight is not None:
            losses = losses * _of_class(weight, labels, kept)
    return _reduce_rows(losses, labels, kept, weight, target, reduction)


@of_images("log_probabilities", moves=False)
def nll_loss(
    log_probabilities: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
    weight: Tensor | None = None,
    *,
    layout: str | None = None,
) -> Tensor:
    """-log_probabilities[target] over the last axis; arguments as ``cross_entropy``'s."""
    name = "nll_loss"
    if weight is None:
        found: Tensor | None = NLL_LOSS.launch_outside(log_probabilities, target, ignore_index, reduction)
        if found is not None:
            return found
    _check_classes(name, log_probabilities, target, reduction, weight)
    if weight is None:
        ignored = whole(name, "ignore_index", ignore_index)
        x, labels, is_flat = log_probabilities, target.detach(), target.ndim == 1
        if not is_flat:
            x, labels = reshape(x, (-1, x.shape[-1])), reshape(labels, (-1,))
        loss = NegativeLogLikelihood.of(x, labels, ignored, reduction, _range(name, x.shape[-1]))
        return loss if is_flat or reduction != "none" else reshape(loss, target.shape)
    rows, labels, kept = _rows(name, log_probabilities, target, ignore_index)
    losses = -_picked(rows, labels) * _of_class(weight, labels, kept)
    return _reduce_rows(losses, labels, kept, weight, target, reduction)


def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(x - target)^2, over all elements "mean", "sum" or "none"; both of one shape."""
    _check_alike("mse_loss", x, target, reduction)
    return _reduced(_squared_error, reduction, x, target)


def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|x - target|, over all elements "mean", "sum" or "none"; both of one shape. The gradient is 0 at 0."""
    _check_alike("l1_loss", x, target, reduction)
    return _reduced(_absolute_error, reduction, x, target)


def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, reduction: str = "mean", pos_weight: Tensor | None = None
) -> Tensor:
    """-(w y log s(x) + (1 - y) log(1 - s(x))) with s the sigmoid: x and target y (0..1) of one shape.

    ``pos_weight`` w broadcasts to x and takes no gradient. Computed without overflow for any finite x.
    """
    name = "binary_cross_entropy_with_logits"
    _check_alike(name, x, target, reduction)
    if pos_weight is not None:
        _check_float(name, "pos_weight", pos_weight)
        if pos_weight.dtype != x.dtype:
            raise DtypeError(f"[{name}] expected pos_weight of dtype {x.dtype}, got {pos_weight.dtype}: cast it")
        if pos_weight.requires_grad:
            raise ArgumentError(f"[{name}] expected pos_weight outside the graph, got one that requires grad")
        _check_broadcast(name, x.shape, pos_weight.shape)
        x.engine.check_owner(name, pos_weight)
    if pos_weight is None:
        return _reduced(_binary_cross_entropy, reduction, x, target)
    return _reduced(_weighted_binary_cross_entropy, reduction, x, target, pos_weight)


def _rows(function: str, logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """(N, C) logits, (N,) labels in range, and a 0/1 factor a row where some may be ignored.

    ArgumentError naming the first label out of range.
    """
    classes, ignore_index = logits.shape[-1], whole(function, "ignore_index", ignore_index)
    labels = target.detach()
    if target.ndim != 1:
        logits, labels = reshape(logits, (-1, classes)), reshape(labels, (-1,))
    safe, ignored = logits.engine.check_labels(labels, classes, _range(function, classes), ignore_index)
    kept = (labels != ignore_index).astype(logits.dtype) if ignored else None
    return logits, safe, kept


@lru_cache(maxsize=1024)
def _range(function: str, classes: int) -> RangeCheck:
    """The error for a label out of range."""
    message = (
        f"[{function}] expected labels in 0..{classes - 1} for {classes} classes, got {{value}} at row {{position}}: "
        "check the labels, or the last layer's size"
    )
    return RangeCheck(ArgumentError, message)


def _picked(rows: Tensor, labels: Tensor) -> Tensor:
    """rows[i, labels[i]]."""
    return call(Gather, rows, (numbers(rows.engine, rows.shape[0]), labels))


def _of_class(weight: Tensor, labels: Tensor, kept: Tensor | None) -> Tensor:
    """The weight of each row's class, 0 of a row that is ignored: its label stands for none."""
    factors = call(Gather, weight, (labels,))
    return factors if kept is None else where(kept != 0, factors, 0.0)


def _reduce_rows(
    losses: Tensor, labels: Tensor, kept: Tensor | None, weight: Tensor | None, target: Tensor, reduction: str
) -> Tensor:
    if reduction == "none":
        losses = losses if kept is None else _counted(losses, kept)
        return losses if target.ndim == 1 else reshape(losses, target.shape)
    if reduction == "mean" and kept is None and weight is None:
        return _row_loss.mean(losses) if losses.requires_grad else mean(losses)
    total = _row_loss.sum(losses) if kept is None else _counted.sum(losses, kept)
    if reduction == "sum":
        return total
    factors = kept if weight is None else _of_class(weight, labels, kept)
    return total / _row_loss.sum(factors)


def _reduced(function: PointwiseFunction, reduction: str, *tensors: Tensor) -> Tensor:
    """The elements of a point-wise loss, or their mean or sum in one pass."""
    if reduction == "none":
        return function(*tensors)
    return function.mean(*tensors) if reduction == "mean" else function.sum(*tensors)


def _check_classes(function: str, logits: Any, target: Any, reduction: str, weight: Tensor | None) -> None:
    _check_reduction(function, reduction)
    _check_float(function, "logits", logits)
    if not isinstance(target, Tensor) or target.dtype != default_int:
        kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise DtypeError(f"[{function}] expected int64 class indices as target, got {kind}: cast it with .long()")
    if logits.ndim < 1 or logits.shape[-1] < 1 or target.shape != logits.shape[:-1]:
        raise ShapeError(
            f"[{function}] expected logits (..., classes) and target (...), got logits: {logits.shape} and target: "
            f"{target.shape}: classes are the last axis"
        )
    logits.engine.check_owner(function, target)
    if weight is not None:
        _check_float(function, "weight", weight)
        if weight.shape != logits.shape[-1:] or weight.dtype != logits.dtype:
            raise ShapeError(
                f"[{function}] expected weight: {logits.shape[-1:]} {logits.dtype}, got {weight.shape} {weight.dtype}"
            )
        logits.engine.check_owner(function, weight)


def _check_alike(function: str, x: Any, target: Any, reduction: str) -> None:
    _check_reduction(function, reduction)
    _check_float(function, "x", x)
    _check_float(function, "target", target)
    if x.shape != target.shape:
        raise ShapeError(
            f"[{function}] expected x and target of one shape, got x: {x.shape} and target: {target.shape}: reshape one"
        )
    if x.dtype != target.dtype:
        raise DtypeError(f"[{function}] expected x and target of one dtype, got {x.dtype} and {target.dtype}: cast one")
    x.engine.check_owner(function, target)


def _check_broadcast(function: str, shape: tuple[int, ...], weight: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(shape, weight) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"[{function}] expected pos_weight that broadcasts to x: {shape}, got {weight}")


def _check_float(function: str, name: str, value: Any) -> None:
    if not isinstance(value, Tensor) or not is_float(value.dtype):
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise DtypeError(f"[{function}] expected {name} as a {float_names()} tensor, got {kind}: cast it")


def _check_reduction(function: str, reduction: str) -> None:
    if type(reduction) is not str or reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f'[{function}] expected reduction "mean", "sum" or "none", got {described(reduction)}')
