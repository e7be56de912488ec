"""Connectionist temporal classification: the loss of all alignments of a sequence with its labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import as_array, flag, whole
from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.autocasting import in_float32
from alpha.functions.loss_arguments import check_float, reduction_of
from alpha.functions.operands import call, check_tensor
from alpha.functions.reduction import mean, sum
from alpha.tensor import Tensor

__all__ = ["ctc_loss"]

Array = np.ndarray[Any, Any]


class CTCLoss(Function):
    """-log of the probability of each sequence's labels, over all alignments; computed on the host in float64."""

    fresh = True

    def forward(
        self, log_probs: Tensor, labels: Array, lengths: Array, label_lengths: Array, blank: int, finite: bool
    ) -> Tensor:
        engine = log_probs.engine
        values = np.asarray(engine.to_numpy(log_probs), np.float64)
        losses, slopes = _aligned(values, labels, lengths, label_lengths, blank, self.needs[0])
        if finite:
            lost = np.isinf(losses)
            losses[lost] = 0
            if slopes is not None:
                slopes[:, lost] = 0
        self.save(None if slopes is None else engine.from_numpy(slopes.astype(log_probs.dtype)))
        return engine.from_numpy(losses.astype(log_probs.dtype))

    def backward(self, grad: Tensor) -> Tensor:
        """An infinite loss that counts has a gradient of NaN, as PyTorch's."""
        (slopes,) = self.saved
        found: Tensor = grad[None, :, None] * slopes
        return found


def _added(*logs: Array) -> Array:
    """log(sum(exp(...))), -infinity of nothing else."""
    top = np.maximum.reduce(logs)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        found: Array = np.log(np.add.reduce([np.exp(log - safe) for log in logs])) + safe
    return found


def _aligned(
    log_probs: Array, labels: Array, lengths: Array, label_lengths: Array, blank: int, with_slopes: bool
) -> tuple[Array, Array | None]:
    """The losses (N,) and their slopes (T, N, C), by the forward and backward variables of Graves et al., ICML 2006.

    A step of time is a step for all sequences. The states of a sequence are its labels with blanks between and around.
    """
    steps, count, _ = log_probs.shape
    states = np.full((count, 2 * labels.shape[1] + 1), blank)
    states[:, 1::2] = labels
    size = states.shape[1]
    sizes = 2 * label_lengths + 1
    is_state: Array = np.arange(size) < sizes[:, None]
    emitted = np.take_along_axis(log_probs, np.broadcast_to(states, (steps, *states.shape)), 2)
    emitted = np.where(is_state, emitted, -np.inf)
    skips = np.zeros(states.shape, bool)  # over a blank between two different labels
    skips[:, 2:] = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    forward = np.full((steps, count, size), -np.inf)
    forward[:1, :, :2] = emitted[:1, :, :2]
    for t in range(1, steps):
        forward[t] = _step(forward[t - 1], skips) + emitted[t]
    rows, last = np.arange(count), np.maximum(lengths - 1, 0)
    finals = [
        np.where(sizes > k, forward[last, rows, np.maximum(sizes - 1 - k, 0)] if steps else -np.inf, -np.inf)
        for k in range(2)
    ]
    total = np.where(lengths > 0, _added(*finals), np.where(label_lengths > 0, -np.inf, 0.0))
    if not with_slopes:
        return -total, None
    backward = np.full((steps, count, size), -np.inf)
    ahead = np.zeros(states.shape, bool)
    ahead[:, :-2] = skips[:, 2:]
    is_final = is_state & (np.arange(size) >= sizes[:, None] - 2)
    for t in range(steps - 1, -1, -1):
        after = _step(backward[t + 1][:, ::-1], ahead[:, ::-1])[:, ::-1] if t + 1 < steps else -np.inf
        is_last: Array = lengths - 1 == t
        start = np.where(is_final, 0.0, -np.inf)
        backward[t] = np.where(is_last[:, None], start, after) + emitted[t]
    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.exp(forward + backward - np.where(np.isfinite(emitted), emitted, 0.0) - total[:, None])
    inside: Array = np.arange(steps)[:, None] < lengths
    found = np.zeros(log_probs.shape)
    np.add.at(found, (np.arange(steps)[:, None, None], rows[:, None], states), shares)
    slopes = np.where(inside[..., None], np.exp(log_probs) - found, 0.0)
    return -total, slopes


def _step(before: Array, skips: Array) -> Array:
    """The logarithms of what comes to each state: from itself, the one before, and the one before that by a skip."""
    one, two = np.full(before.shape, -np.inf), np.full(before.shape, -np.inf)
    one[:, 1:], two[:, 2:] = before[:, :-1], before[:, :-2]
    return _added(before, one, np.where(skips, two, -np.inf))


@in_float32
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of labels under all their alignments with a sequence. Graves et al., ICML 2006.

    Args:
        log_probs: (T, N, C), or (T, C): logarithms of probabilities, as ``log_softmax`` gives them.
        targets: (N, S) labels, or those of all sequences one after another; none is ``blank``.
        input_lengths, target_lengths: (N,) how many steps and labels count; tensors or sequences of ints.
        blank: the class that stands for no label.
        reduction: "mean" over the batch of each loss over its number of labels, "sum", or "none".
        zero_infinity: whether a loss that is infinite, and its gradient, count as 0: too few steps for the labels.

    As PyTorch's, the gradient is that for the logits of the ``log_softmax``: equal for them, not for ``log_probs``.
    """
    name = "ctc_loss"
    reduction = reduction_of(name, reduction)
    check_float(name, "log_probs", log_probs)
    check_tensor(name, targets)
    if log_probs.ndim == 2:
        lengths = (input_lengths, target_lengths)
        alone = ctc_loss(log_probs.unsqueeze(1), targets.reshape(1, -1), *lengths, blank, reduction, zero_infinity)
        return alone.reshape(()) if reduction == "none" else alone
    if log_probs.ndim != 3 or not dtypes.is_integer(targets.dtype):
        raise ShapeError(
            f"[{name}] expected log_probs (T, N, C) and integers as targets, got {log_probs.shape} and "
            f"{targets.shape} of {targets.dtype}"
        )
    steps, count, classes = log_probs.shape
    blank = whole(name, "blank", blank, 0, classes - 1)
    counts = _lengths(name, "input_lengths", input_lengths, count, steps)
    label_lengths = _lengths(name, "target_lengths", target_lengths, count, targets.shape[-1] if targets.ndim else 0)
    labels = _by_sequence(name, np.asarray(targets.detach().numpy()), label_lengths, classes)
    finite = flag(name, "zero_infinity", zero_infinity)
    losses = call(CTCLoss, log_probs, labels, counts, label_lengths, blank, finite)
    if reduction == "mean":
        divisors = np.maximum(label_lengths, 1).astype(log_probs.dtype)
        return mean(losses / log_probs.engine.from_numpy(divisors))
    return losses if reduction == "none" else sum(losses)


def _lengths(function: str, name: str, given: Any, count: int, most: int) -> Array:
    """Lengths (N,) on the host, each from 0 to the most."""
    array = given.detach().numpy() if isinstance(given, Tensor) else given
    found = as_array(function, array).reshape(-1)
    if not dtypes.is_integer(found.dtype) or found.shape != (count,):
        raise DtypeError(f"[{function}] expected {name} as {count} ints, got {described(given)}")
    if count and not 0 <= found.min() <= found.max() <= most:
        raise ArgumentError(f"[{function}] expected {name} in 0..{most}, got {described(found)}")
    return found.astype(np.int64)


def _by_sequence(function: str, targets: Array, lengths: Array, classes: int) -> Array:
    """The labels as a row for each sequence; those behind a sequence's last mean nothing."""
    longest = int(lengths.max()) if len(lengths) else 0
    if targets.ndim == 1:
        if targets.shape[0] < lengths.sum():
            raise ShapeError(f"[{function}] expected {lengths.sum()} labels in a row, got {targets.shape[0]}")
        places = (np.cumsum(lengths) - lengths)[:, None] + np.arange(longest)
        targets = targets[np.minimum(places, max(len(targets) - 1, 0))] if len(targets) else np.zeros(places.shape, int)
    if targets.ndim != 2 or targets.shape[0] != len(lengths) or targets.shape[1] < longest:
        raise ShapeError(f"[{function}] expected targets (N, S) of {len(lengths)} sequences, got {targets.shape}")
    counts = np.arange(longest) < lengths[:, None]
    labels = targets[:, :longest]
    if (counts & ((labels < 0) | (labels >= classes))).any():
        raise ArgumentError(f"[{function}] expected labels in 0..{classes - 1}, got others: check them")
    found: Array = np.where(counts, labels, 0).astype(np.int64)
    return found
