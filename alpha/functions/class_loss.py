"""Losses of classes: cross entropy, and the negative log likelihood."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from alpha.arguments import whole
from alpha.autograd import Function, edges_of
from alpha.dtypes import default_int, is_float
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import pointwise
from alpha.functions import elementwise
from alpha.functions.activation import log_softmax, softmax
from alpha.functions.autocasting import in_float32
from alpha.functions.elementwise import where
from alpha.functions.images import of_images
from alpha.functions.indexing import Gather, one_hot
from alpha.functions.loss_arguments import check_float, check_weight, reduction_of
from alpha.functions.operands import call, numbers
from alpha.functions.reduction import mean
from alpha.functions.shape import reshape
from alpha.launches import NLL_LOSS
from alpha.tensor import Tensor

_NUMBERS = (int, float, np.integer, np.floating)

__all__ = ["cross_entropy", "nll_loss"]


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

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """grad * (p - target); p is the softmax of its own logarithm, which is the logits but for a number."""
        probabilities, labels = self.saved
        p = softmax(self.argument_in_graph(0, elementwise.log(probabilities.detach())), -1)
        found: Tensor = (p - _smoothed(labels, p, self.smoothing)) * reshape(grad, (-1, 1))
        return found


class CrossEntropyLoss(Function):
    """The rows' -log softmax(logits)[label], or their sum or mean, where an engine has them at once."""

    fresh = True

    smoothing: float

    @classmethod
    def of(
        cls, logits: Tensor, labels: Tensor, ignore_index: int, reduction: str, smoothing: float, check: RangeCheck
    ) -> Tensor | None:
        """The loss, in the graph where the logits are; None where the engine leaves it to others."""
        edges = edges_of((logits,))
        found = logits.storage.engine.cross_entropy_loss(logits, labels, ignore_index, reduction, smoothing, check)
        if found is None or edges is None:
            return None if found is None else found[0]
        loss, *saved = found
        function = cls()
        function.smoothing = smoothing
        return function.record(edges, saved, loss)

    def backward(self, grad: Tensor) -> Tensor:
        probabilities, followed, factor = self.saved
        return grad.engine.cross_entropy_loss_grad(grad, probabilities, followed, factor, self.smoothing)

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """As that of the rows' losses; rows that were ignored have the label -1."""
        probabilities, followed, factor = self.saved
        kept = reshape(followed >= 0, (-1, 1))
        p = softmax(self.argument_in_graph(0, elementwise.log(probabilities.detach())), -1)
        target = _smoothed(where(followed >= 0, followed, 0), p, self.smoothing)
        return where(kept, (p - target) * reshape(grad * factor, (-1, 1)), 0.0)


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

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        """-grad * factor at the labels' places; rows that were ignored have the label -1."""
        (followed,) = self.saved
        kept = followed >= 0
        places = one_hot(where(kept, followed, 0), self.classes).bool() & reshape(kept, (-1, 1))
        scaled = reshape(grad * self.factor, (-1, 1))
        return where(places, -scaled, 0.0)


def _smoothed(labels: Tensor, p: Tensor, smoothing: float) -> Tensor:
    """The target distribution of labels in range, as the probabilities ``p`` are."""
    classes = p.shape[1]
    target: Tensor = one_hot(labels.long(), classes).to(p.dtype) * (1 - smoothing) + smoothing / classes
    return target


@pointwise
def _row_loss(loss):  # type: ignore[no-untyped-def]
    return +loss


@pointwise
def _counted(loss, kept):  # type: ignore[no-untyped-def]
    """Not a product: the loss of an ignored row may be infinite."""
    return elementwise.where(kept != 0, loss, 0.0)


@pointwise
def _expected(log_p, target, weight, smoothing, share):  # type: ignore[no-untyped-def]
    """A class's share of -sum over classes of the smoothed target, its weight, and log p."""
    return -log_p * (target * (1 - smoothing) + share) * weight


@in_float32
@of_images("input", "target", moves=False)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    layout: str | None = None,
) -> Tensor:
    """-log softmax(input)[target], softmax over the classes, which are the last axis (the second with "NCHW").

    Args:
        input: (N, C), or (..., C): logits.
        target: (N,), or (...), int64 class indices; rows whose target is ``ignore_index`` count nothing. Or floats as
            the input's shape: each class's probability.
        weight: (C,), a factor for each class.
        size_average, reduce: older names of reductions.
        ignore_index: see ``target``.
        reduction: "mean" over the rows (weighted by their target's weight), "sum", or "none": losses as target's shape.
        label_smoothing: e in 0..1; the target distribution is (1 - e) * onehot + e / C.
    """
    name = "cross_entropy"
    if not isinstance(label_smoothing, _NUMBERS) or not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"[{name}] expected label_smoothing in 0..1, got {described(label_smoothing)}")
    label_smoothing = float(label_smoothing)
    reduction = reduction_of(name, reduction, size_average, reduce)
    if isinstance(target, Tensor) and is_float(target.dtype):
        return _of_probabilities(name, input, target, weight, ignore_index, reduction, label_smoothing)
    _check_classes(name, input, target, weight)
    losses: Tensor
    if weight is None and input.storage.engine.has_losses_at_once:
        loss = _at_once(name, input, target, ignore_index, reduction, label_smoothing)
        if loss is not None:
            return loss
    rows, labels, kept = _rows(name, input, target, ignore_index)
    if weight is not None and label_smoothing > 0:
        log_p = log_softmax(rows, -1)
        smooth = -(log_p * weight).sum(-1) * (label_smoothing / rows.shape[1])
        losses = (1 - label_smoothing) * (_picked(log_p, labels) * -_of_class(weight, labels, kept)) + smooth
    else:
        losses = CrossEntropy.of(rows, labels, label_smoothing)
        if weight is not None:
            losses = losses * _of_class(weight, labels, kept)
    return _reduce_rows(losses, labels, kept, weight, target, reduction)


def _at_once(
    name: str, input: Tensor, target: Tensor, ignore_index: int, reduction: str, smoothing: float
) -> Tensor | None:
    """The loss without weights by one operation, where the engine has it."""
    ignored, classes = whole(name, "ignore_index", ignore_index), input.shape[-1]
    logits, labels = input, target.detach()
    if target.ndim != 1:
        logits, labels = reshape(logits, (-1, classes)), reshape(labels, (-1,))
    loss = CrossEntropyLoss.of(logits, labels, ignored, reduction, smoothing, _range(name, classes))
    return loss if loss is None or reduction != "none" or target.ndim == 1 else reshape(loss, target.shape)


def _of_probabilities(
    name: str,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """Cross entropy with each class's probability as the target; its mean is over the rows."""
    check_float(name, "input", input)
    input.engine.check_owner(name, target)
    if input.shape != target.shape or not input.shape or not input.shape[-1]:
        raise ShapeError(
            f"[{name}] expected probabilities of the input's shape {input.shape}, got target: {target.shape}"
        )
    if target.dtype != input.dtype:
        raise DtypeError(f"[{name}] expected input and target of one dtype, got {input.dtype} and {target.dtype}")
    if whole(name, "ignore_index", ignore_index) >= 0:
        raise ArgumentError(f"[{name}] expected no ignore_index with probabilities as target, got {ignore_index}")
    classes = input.shape[-1]
    factor: Tensor | float = 1.0 if weight is None else check_weight(name, "weight", input, weight, (classes,))
    arguments = (log_softmax(input, -1), target, factor, smoothing, smoothing / classes)
    if reduction == "none":
        return _expected(*arguments).sum(-1)
    total = _expected.sum(*arguments)
    rows = input.numel() // classes
    return total if reduction == "sum" else total / rows if rows else total * float("nan")


@in_float32
@of_images("input", moves=False)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    *,
    layout: str | None = None,
) -> Tensor:
    """-input[target] of log-probabilities along the classes; arguments as ``cross_entropy``'s, target of integers."""
    name = "nll_loss"
    if weight is None and size_average is None and reduce is None:
        found: Tensor | None = NLL_LOSS.launch_outside(input, target, ignore_index, reduction)
        if found is not None:
            return found
    reduction = reduction_of(name, reduction, size_average, reduce)
    _check_classes(name, input, target, weight)
    if weight is None:
        ignored = whole(name, "ignore_index", ignore_index)
        x, labels, is_flat = input, target.detach(), target.ndim == 1
        if not is_flat:
            x, labels = reshape(x, (-1, x.shape[-1])), reshape(labels, (-1,))
        loss = NegativeLogLikelihood.of(x, labels, ignored, reduction, _range(name, x.shape[-1]))
        return loss if is_flat or reduction != "none" else reshape(loss, target.shape)
    rows, labels, kept = _rows(name, input, target, ignore_index)
    losses = -_picked(rows, labels) * _of_class(weight, labels, kept)
    return _reduce_rows(losses, labels, kept, weight, target, reduction)


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


def _check_classes(function: str, input: Any, target: Any, weight: Tensor | None) -> None:
    check_float(function, "input", input)
    if not isinstance(target, Tensor) or target.dtype != default_int:
        kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise DtypeError(f"[{function}] expected int64 class indices as target, got {kind}: cast it with .long()")
    if input.ndim < 1 or input.shape[-1] < 1 or target.shape != input.shape[:-1]:
        raise ShapeError(
            f"[{function}] expected input (..., classes) and target (...), got input: {input.shape} and target: "
            f"{target.shape}: classes are the last axis"
        )
    input.engine.check_owner(function, target)
    if weight is not None:
        check_float(function, "weight", weight)
        if weight.shape != input.shape[-1:] or weight.dtype != input.dtype:
            raise ShapeError(
                f"[{function}] expected weight: {input.shape[-1:]} {input.dtype}, got {weight.shape} {weight.dtype}"
            )
        input.engine.check_owner(function, weight)
