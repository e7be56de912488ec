"""Whether what is off by more than the tolerance is wrong, or all that the dtype and the arguments allow."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import numpy as np

from tests.robustness import compare
from tests.robustness.cases import Base, Case, Draw, Input, walk
from tests.robustness.expected import Array, Change, arrays, expected, is_extreme
from tests.robustness.faults import Failure
from tests.robustness.peer import Peer, array_of
from tests.robustness.record import Record


@dataclass
class Comparison:
    """A result that differs: of a call, got instead of want, at the elements of ``wrong``."""

    record: Record
    case: Case
    draw: Draw
    got: Array
    want: Array
    wrong: Array
    number: int

    @property
    def eps(self) -> float:
        """A rounding of the result's dtype."""
        return float(np.finfo(self.got.dtype).eps)

    def failure(self, kind: str) -> Failure:
        """What is to be reported where something stays wrong."""
        what = compare.kinds(list(arrays(self.case)))
        return Failure(kind, what, f"output {self.number}: {compare.describe(self.got, self.want, self.wrong)}")


def judge_value(comparison: Comparison, peer: Peer | None) -> None:
    """Raises unless PyTorch, the oracle in the result's own dtype, or the arguments' last bits explain the result."""
    q = comparison
    with np.errstate(all="ignore"):
        if q.got.dtype.kind == "f":
            _as_peer(q, peer)
            same = expected(q.record, q.case, np.dtype(q.got.dtype)) if q.wrong.any() else None
            if same is not None:
                q.wrong = q.wrong & ~compare.as_good(q.got, q.want, same[q.number])
            if q.wrong.any():
                _conditioned_value(q)
        else:
            _as_positions(q, peer)
    if q.wrong.any():
        raise q.failure("value")


def _as_peer(q: Comparison, peer: Peer | None) -> None:
    if peer is None or q.record.peer is None:
        return
    with contextlib.suppress(Exception):  # PyTorch refuses what we accept
        _, outputs = peer.call(q.record, q.case, peer.dtype(q.got))
        q.wrong = q.wrong & ~compare.as_good(q.got, q.want, array_of(outputs[q.number]))


def _as_positions(q: Comparison, peer: Peer | None) -> None:
    """Positions and truths follow from float results, which a rounding may turn: they may be those of the own dtype."""
    if peer is not None and q.record.peer is not None:
        with contextlib.suppress(Exception):  # PyTorch refuses what we accept
            _, outputs = peer.call(q.record, q.case, None)
            q.wrong = q.wrong & (q.got != array_of(outputs[q.number]))
    same = expected(q.record, q.case, None) if q.wrong.any() else None
    if same is not None and same[q.number].shape == q.got.shape:
        q.wrong = q.wrong & (q.got != same[q.number])


def _conditioned_value(q: Comparison) -> None:
    def oracle(change: Change) -> Array:
        found = expected(q.record, q.case, np.float64, change)
        return q.want if found is None else found[q.number]

    q.wrong = compare.conditioned(q.got, q.want, q.wrong, oracle, q.draw.np, q.eps)


def judge_gradient(comparison: Comparison, peer: Peer, grads: list[Array], leaves: list[Base]) -> bool:
    """Raises unless PyTorch in the same dtype or the arguments' last bits explain a gradient.

    Returns whether differences of the oracle say that PyTorch is wrong and we are right.
    """
    q = comparison
    with np.errstate(all="ignore"):
        near = peer.gradients(q.record, q.case, peer.dtype(q.got), grads, leaves)[q.number]
        q.wrong = q.wrong & ~compare.as_good(q.got, q.want, near)
        if q.wrong.any():

            def slope(change: Change) -> Array:
                moved = [change(g.astype(np.float64)) for g in grads]
                return peer.gradients(q.record, q.case, peer.torch.float64, moved, leaves, change)[q.number]

            q.wrong = compare.conditioned(q.got, q.want, q.wrong, slope, q.draw.np, q.eps)
        if q.wrong.any() and is_extreme(q.case) and all(np.isfinite(a).all() for a in arrays(q.case)):
            # PyTorch made infinities of finite numbers, and NaN of these, where we did not.
            q.wrong = q.wrong & ~(np.isnan(q.want) & np.isfinite(q.got))
        if q.wrong.any():
            q.wrong = q.wrong & ~_summed(q, peer, grads, leaves[q.number])
        if not q.wrong.any():
            return False
        if q.record.differences and _confirmed(q, leaves[q.number], grads):
            return True
    raise q.failure("gradient")


def _summed(q: Comparison, peer: Peer, grads: list[Array], base: Base) -> Array:
    """Where what differs is a rounding of the terms that were summed over a base's repeated elements.

    They may cancel: the gradients of a row of equal logits add up to 0.
    """
    views = [i for i in q.case.inputs() if i.base is base]
    if base.copied or base.array.size == 0 or sum(i.numpy().size for i in views) <= base.array.size:
        return np.zeros(q.want.shape, np.bool_)
    alone = {id(i): Base(np.array(i.numpy()), True) for i in views}
    case = Case(*walk((q.case.args, q.case.options), lambda i: Input(alone[id(i)]) if id(i) in alone else i))
    bound = 0.0
    for terms in peer.gradients(q.record, case, peer.torch.float64, grads, list(alone.values())):
        usual = np.abs(terms[np.isfinite(terms)])
        bound += float(usual.max(initial=0)) * terms.size / base.array.size
    near: Array = np.abs(q.got.astype(np.float64) - q.want) <= compare.SUMS.sums * q.eps * bound
    return near


# -- differences -------------------------------------------------------------------------------------------------


def _confirmed(q: Comparison, base: Base, grads: list[Array]) -> bool:
    """Whether differences of the oracle are on our side and not on PyTorch's, along where the two differ."""
    gap = np.where(q.wrong, q.got.astype(np.float64) - q.want, 0)
    direction = gap / np.abs(gap).max()
    if not np.isfinite(direction).all():
        return False
    sides = _slopes(q.record, q.case, base, grads, direction, 1e-5)
    if sides is None:
        return False
    slope = sum(sides) / 2
    ours = abs(float((q.got * direction).sum()) - slope)
    theirs = abs(float((q.want * direction).sum()) - slope)
    coarse = 1e-5 if q.got.dtype == np.float32 else 1e-9
    noise = coarse * (sum(float(np.abs(g).sum()) for g in grads) + 1)
    return ours <= max(0.1 * theirs, noise)


def _slopes(
    record: Record, case: Case, base: Base, grads: list[Array], direction: Array, step: float
) -> tuple[float, float] | None:
    """Slopes of the oracle's results times ``grads`` before and after the arguments, along a direction of one base."""
    original, values = base.array, []
    try:
        for factor in (-step, 0.0, step):
            base.array = np.asarray(original.astype(np.float64) + factor * direction)
            want = expected(record, case, np.float64)
            if want is None:
                return None
            floats = [w for w in want if w.dtype.kind == "f"]
            values.append(sum(float((w * g).sum()) for w, g in zip(floats, grads, strict=True)))
    finally:
        base.array = original
    return (values[1] - values[0]) / step, (values[2] - values[1]) / step


def judge_by_differences(record: Record, case: Case, draw: Draw, base: Base, mine: Array, grads: list[Array]) -> None:
    """Raises where a gradient along a random direction is not what differences give, which agree on both sides."""
    direction = np.asarray(draw.np.standard_normal(base.array.shape))
    sides = _slopes(record, case, base, grads, direction, 3e-5)
    if sides is None or not math.isfinite(sum(sides)):
        return
    along, middle = float((mine.astype(np.float64) * direction).sum()), sum(sides) / 2
    # Where terms cancel, as in x / x, their rounding remains: hence the constants.
    remains = 1e-2 if base.array.dtype == np.float32 else 1e-3
    size = float(np.abs(mine * direction).sum()) + abs(middle) + remains
    if abs(sides[1] - sides[0]) > 1e-3 * size:
        return  # a kink, or too steep
    if not abs(along - middle) <= 3e-3 * size:
        raise Failure("gradient", "differences", f"{along!r} along a direction, differences give {middle!r}")
