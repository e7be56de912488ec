"""Losses that ask for a margin: of pairs, triplets, classes and several classes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.arguments import number, whole
from alpha.dtypes import int64, is_integer
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_float32
from alpha.functions.distance import pairwise_distance
from alpha.functions.elementwise import clamp, maximum, minimum, sqrt, where
from alpha.functions.extremes import any
from alpha.functions.likelihood import softplus
from alpha.functions.lookups import gather, index_select
from alpha.functions.loss_arguments import (
    check_float,
    check_weight,
    of_one_shape,
    reduce_losses,
    reduced,
    reduction_of,
    together,
)
from alpha.functions.operands import check_tensor, numbers
from alpha.functions.reduction import mean, sum
from alpha.functions.running import cumsum
from alpha.functions.shape import reshape, unsqueeze
from alpha.tensor import Tensor

__all__ = [
    "cosine_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]

_EPS = 1e-12
"""What PyTorch's cosine embedding loss adds to the squares."""


# -- pairs and triplets ------------------------------------------------------------------------------------------


@pointwise
def _ranking(first, second, target, margin):  # type: ignore[no-untyped-def]
    return clamp(margin - target * (first - second), 0.0)


@pointwise
def _cosine_margin(dot, first, second, target, margin):  # type: ignore[no-untyped-def]
    cosine = dot / sqrt((first + _EPS) * (second + _EPS))
    return where(target == 1, 1 - cosine, 0.0) + where(target == -1, clamp(cosine - margin, 0.0), 0.0)


@pointwise
def _further(near, far, margin):  # type: ignore[no-untyped-def]
    return clamp(margin + near - far, 0.0)


@in_float32
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - y (input1 - input2)): input1 is to be larger where the target y is 1, smaller where it is -1."""
    name = "margin_ranking_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    given = together(name, False, input1=input1, input2=input2, target=target)
    return reduced(_ranking, reduction, *given, number(name, "margin", margin))


@in_float32
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos of vectors (..., C) where the target (...) is 1, max(0, cos - margin) where it is -1."""
    name = "cosine_embedding_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    check_tensor(name, target)
    input1, input2 = together(name, False, input1=input1, input2=input2)
    if input1.shape != input2.shape or input1.ndim not in (1, 2) or target.ndim != input1.ndim - 1:
        raise ShapeError(
            f"[{name}] expected two inputs (N, C) and a target (N,), or (C,) and (), got {input1.shape}, "
            f"{input2.shape} and {target.shape}"
        )
    dot, first, second = (sum(x * y, -1) for x, y in ((input1, input2), (input1, input1), (input2, input2)))
    dot, target = together(name, False, dot=dot, target=target)
    return reduced(_cosine_margin, reduction, dot, first, second, target, number(name, "margin", margin))


@in_float32
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d the ``pairwise_distance`` of vectors (..., C).

    ``swap``: the distance of positive and negative counts where it is less than that of anchor and negative.
    """
    name = "triplet_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return _triplet(name, (anchor, positive, negative), distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``triplet_margin_loss`` with a distance of one's own, ``pairwise_distance`` unless given."""
    name = "triplet_margin_with_distance_loss"
    reduction = reduction_of(name, reduction)
    distance = pairwise_distance if distance_function is None else distance_function
    if not callable(distance):
        raise ArgumentError(f"[{name}] expected distance_function as a function, got {described(distance)}")
    return _triplet(name, (anchor, positive, negative), distance, margin, swap, reduction)


def _triplet(
    function: str,
    triplet: tuple[Tensor, ...],
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    margin = number(function, "margin", margin)
    anchor, positive, negative = triplet
    together(function, False, anchor=anchor, positive=positive, negative=negative)
    if not margin > 0 and function != "triplet_margin_loss":
        raise ArgumentError(f"[{function}] expected margin > 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"[{function}] expected anchor, positive and negative of as many axes, got {anchor.shape}, "
            f"{positive.shape} and {negative.shape}"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(_further, reduction, near, far, margin)


# -- classes -----------------------------------------------------------------------------------------------------


@pointwise
def _beyond(x, picked, is_target, margin):  # type: ignore[no-untyped-def]
    return where(is_target, 0.0, maximum(margin - picked + x, 0.0))


@in_float32
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum over i != y of max(0, margin - x[y] + x[i])^p * weight[y] / C
    of scores (N, C) or (C,) and classes (N,) or ().

    p is 1 or 2; the weight (C,) takes no gradient.
    """
    name = "multi_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    p, margin = whole(name, "p", p, 1, 2), number(name, "margin", margin)
    check_float(name, "input", input)
    _check_integers(name, target)
    shape, classes = target.shape, input.shape[-1] if input.ndim else 0
    if input.ndim not in (1, 2) or not classes or target.numel() != input.numel() // classes or target.ndim > 1:
        raise ShapeError(f"[{name}] expected scores (N, C) and classes (N,), got {input.shape} and {target.shape}")
    rows, labels = reshape(input, (-1, classes)), _followed(name, reshape(target, (-1, 1)), classes)
    terms = _beyond(rows, gather(rows, 1, labels), numbers(input.engine, classes) == labels, margin)
    terms = terms if p == 1 else terms * terms
    if weight is not None:
        factors = index_select(check_weight(name, "weight", input, weight, (classes,)), 0, reshape(labels, (-1,)))
        terms = terms * unsqueeze(factors, 1)
    return reduce_losses(reshape(mean(terms, 1), shape), reduction)


@in_float32
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """sum over targets j and other classes i of max(0, 1 - x[j] + x[i]) / C of scores (N, C) or (C,).

    ``target``: classes, shaped as the scores; those before a row's first -1 are its targets.
    """
    name = "multilabel_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    check_float(name, "input", input)
    _check_integers(name, target)
    classes = input.shape[-1] if input.ndim else 1
    if input.shape != target.shape or input.ndim > 2 or not classes:
        raise ShapeError(f"[{name}] expected scores and targets (N, C) or (C,), got {input.shape} and {target.shape}")
    rows, labels = reshape(input, (-1, classes)), reshape(target, (-1, classes))
    counts = cumsum((labels < 0).long(), 1) == 0
    labels = _followed(name, where(counts, labels, 0), classes)
    is_target = any((unsqueeze(labels, 2) == numbers(input.engine, classes)) & unsqueeze(counts, 2), 1)
    skipped = unsqueeze(is_target, 1) | unsqueeze(~counts, 2)
    terms = _beyond(unsqueeze(rows, 1), unsqueeze(gather(rows, 1, labels), 2), skipped, 1.0)
    losses = sum(terms, (1, 2)) / classes
    return reduce_losses(losses if input.ndim == 2 else reshape(losses, ()), reduction)


@pointwise
def _several_labels(x, y):  # type: ignore[no-untyped-def]
    """-(y log s(x) + (1 - y) log s(-x)) with s the sigmoid."""
    return (1 - y) * x + softplus(-x)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the last axis of -w (y log s(x) + (1 - y) log(1 - s(x))), s the sigmoid; w broadcasts to x."""
    name = "multilabel_soft_margin_loss"
    reduction = reduction_of(name, reduction, size_average, reduce)
    losses = _several_labels(*of_one_shape(name, input, target))
    if weight is not None:
        losses = losses * check_weight(name, "weight", input, weight)
    return reduce_losses(mean(losses, -1) if losses.ndim else losses, reduction)


def _check_integers(function: str, target: Any) -> None:
    check_tensor(function, target)
    if not is_integer(target.dtype):
        raise DtypeError(f"[{function}] expected class indices as target, got {described(target.dtype)}: cast them")


def _followed(function: str, labels: Tensor, classes: int) -> Tensor:
    """The labels, which are in range; ArgumentError naming the first that is not."""
    message = f"[{function}] expected labels in 0..{classes - 1}, got {{value}}: check the labels"
    return labels.engine.check_range(labels.detach().astype(int64), 0, classes, RangeCheck(ArgumentError, message))
