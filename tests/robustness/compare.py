"""Whether a result is right: against float64 first, and where that is not enough against what float32 can hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

ROUNDINGS = 16
"""Roundings of the result's dtype that every comparison grants: a formula of a few operations gathers as many."""

PERTURBATIONS = 4
"""Times that the oracle is evaluated at arguments moved by a rounding, to see how much the result then moves."""

AMPLIFIED = 24
"""How many times the largest such movement is granted: a sum's roundings are not only those of its arguments."""


@dataclass(frozen=True)
class Tolerance:
    """How far a float result may be from float64's, in roundings (eps) of its dtype.

    Attributes:
        roundings: of each element's own size.
        sums: of the largest finite element's size, for results that are sums of terms of both signs.
        unit: of 1, where arguments of about that size cancel.
        reason: why it is so many.
    """

    roundings: float = ROUNDINGS
    sums: float = 0.0
    unit: float = 0.0
    reason: str = "a few operations, each rounded once"


POINTWISE = Tolerance()
SUMS = Tolerance(64, 64, 0, "sums of up to a few thousand terms, whose roundings grow with their square root")
SOLVED = Tolerance(256, 256, 0, "means and variances of terms that cancel, then divided by")
NORMALISED = Tolerance(
    256, 256, 1500, "x - mean cancels and is divided by a deviation that may be small: 1 / sqrt(eps) is 316"
)


def differing(got: Array, want: Array, tolerance: Tolerance) -> Array | None:
    """Where a result is not the expected one within the tolerance, or None where it is everywhere."""
    if got.dtype.kind != "f":
        wrong = got != want
        return wrong if wrong.any() else None
    with np.errstate(all="ignore"):
        return _differing(got, want, tolerance)


def _differing(got: Array, want: Array, tolerance: Tolerance) -> Array | None:
    eps = np.finfo(got.dtype).eps
    rounded = want.astype(got.dtype)  # beyond the dtype's range: infinite
    difference = np.abs(got.astype(np.float64) - want)
    bound = np.abs(want) * (tolerance.roundings * eps) + (tolerance.unit * eps + np.finfo(got.dtype).tiny)
    if tolerance.sums:
        finite = np.abs(want[np.isfinite(want)])
        bound = bound + (finite.max() if finite.size else 0.0) * (tolerance.sums * eps)
        # A sum beyond the dtype's range may end at either infinity, or at their difference.
        bound = np.where((np.abs(want) > np.finfo(got.dtype).max) & ~np.isfinite(got), np.inf, bound)
        difference = np.where(np.isinf(bound), 0, difference)
    right = (difference <= bound) | (got == rounded) | (np.isnan(got) & np.isnan(want))
    return None if right.all() else ~right


def as_good(got: Array, want: Array, peer: Array | None) -> Array:
    """Where a result is what PyTorch gives in the same dtype, or no further from float64 than four times that.

    Also where both left the dtype's range on their way to a finite result.
    """
    if peer is None or peer.shape != got.shape:
        return np.zeros(got.shape, np.bool_)
    ours, theirs = np.abs(got.astype(np.float64) - want), np.abs(peer.astype(np.float64) - want)
    near = np.abs(got.astype(np.float64) - peer) <= np.abs(want) * (4 * np.finfo(got.dtype).eps)
    left = np.isfinite(want) & ~np.isfinite(got) & ~np.isfinite(peer)
    good: Array = (got == peer) | (np.isnan(got) & np.isnan(peer)) | (ours <= 4 * theirs) | near | left
    return good


def conditioned(
    got: Array,
    want: Array,
    wrong: Array,
    oracle: Callable[[Callable[[Array], Array]], Array],
    rng: np.random.Generator,
    eps: float,
) -> Array:
    """What is still wrong when the bound grows by how far the result moves with its arguments' last bits.

    ``oracle(change)`` evaluates the expected result at changed arguments.
    """
    moved = np.zeros(want.shape)
    for _ in range(PERTURBATIONS):

        def change(array: Array) -> Array:
            return np.asarray(array * (1 + eps * rng.uniform(-1, 1, array.shape)))

        other = oracle(change)
        if other.shape != want.shape:
            return wrong
        moved = np.fmax(moved, np.abs(other - want))
    granted: Array = wrong & ~(np.abs(got.astype(np.float64) - want) <= AMPLIFIED * moved)
    return granted


def describe(got: Array, want: Array, wrong: Array) -> str:
    """The first element that differs, in words."""
    place = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size}, at {place} {got[place]!r} instead of {want[place]!r}"


def kinds(arrays: Sequence[Array]) -> str:
    """Which special values arrays hold, in one word: what tells one fault from another."""
    names = []
    floats = [a for a in arrays if a.dtype.kind == "f" and a.size]
    with np.errstate(all="ignore"):
        if any(np.isnan(a).any() for a in floats):
            names.append("nan")
        if any(np.isinf(a).any() for a in floats):
            names.append("inf")
        if any((np.abs(a) > 1e18).any() for a in floats) and "inf" not in names:
            names.append("huge")
        if any(((np.abs(a) < 1e-18) & (a != 0)).any() for a in floats):
            names.append("tiny")
    if any(a.size == 0 for a in arrays):
        names.append("empty")
    return "+".join(names) or "ordinary"


__all__ = [
    "NORMALISED",
    "POINTWISE",
    "SOLVED",
    "SUMS",
    "Tolerance",
    "as_good",
    "conditioned",
    "describe",
    "differing",
    "kinds",
]
