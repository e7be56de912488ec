"""One call: made by the engine, by the oracle and by PyTorch, forward and backward, and compared."""

from __future__ import annotations

from typing import Any

import numpy as np

import alpha
from alpha.errors import AlphaError
from tests.robustness import compare
from tests.robustness.cases import Base, Case, Draw, source
from tests.robustness.expected import Array, Made, arrays, expected, is_extreme, result_dtype
from tests.robustness.faults import Failure, Fault, check_message, is_signature, unclean
from tests.robustness.judge import Comparison, judge_by_differences, judge_gradient, judge_value
from tests.robustness.peer import Peer
from tests.robustness.record import Record
from tests.robustness.spoil import spoiled


class Runner:
    """Makes calls of records one after another.

    Args:
        torch: PyTorch, or None.
    """

    def __init__(self, records: list[Record], seed: int, torch: Any = None, limit: int | None = None) -> None:
        self.records, self.seed, self.limit = records, seed, limit
        self.peer = None if torch is None else Peer(torch)
        self.thresholds = np.cumsum([record.weight for record in records])
        self.counts = {
            "forward": 0,
            "backward": 0,
            "refused as expected": 0,
            "spoiled": 0,
            "refused by PyTorch": 0,
            "PyTorch is wrong": 0,
            "not compared": 0,
        }

    def case(self, index: int) -> tuple[Record, Case, Draw]:
        """The call of a number."""
        draw = Draw(self.seed, index, self.limit)
        place = np.searchsorted(self.thresholds, draw.py.random() * self.thresholds[-1], side="right")
        record = self.records[min(int(place), len(self.records) - 1)]
        case = record.draw(draw)
        if draw.values != "ordinary":
            case.ordinary = False
        if draw.chance(0.05) and record.call is None:  # else the arguments are those of a function of ours
            is_method = record.name.startswith(("alpha.Tensor.", "operator."))
            wrong = spoiled(case, draw, 1 if is_method else 0)
            if wrong.inputs() or not record.name.startswith("operator."):  # of two numbers Python has the answer
                case = wrong
        return record, case, draw

    def __call__(self, index: int) -> Fault | None:
        """Makes the call of a number; a Fault where anything is wrong."""
        record, case, draw = self.case(index)
        try:
            self._run(record, case, draw)
        except Failure as failure:
            kind, what, detail = failure.args
            return Fault(index, record.name, kind, what, detail, case.size(), source(record.name, case))
        return None

    # -- the call itself

    def _run(self, record: Record, case: Case, draw: Draw) -> None:
        alpha.manual_seed(draw.whole(0, 1000))
        ours = _ours(case)
        given = [base.array.copy() for base in case.bases()]
        try:
            result = record.function()(*ours.args, **ours.options)
        except AlphaError as error:
            check_message(error)
            if case.valid and not case.spoiled:
                what = f"{type(error).__name__} {compare.kinds(given)}"
                raise Failure("refused", what, f"{type(error).__name__}: {error}") from None
            self.counts["refused as expected"] += 1
            return
        except Exception as error:
            if case.spoiled and isinstance(error, TypeError) and is_signature(error):
                self.counts["refused as expected"] += 1
                return
            raise unclean(error, "") from None
        if case.spoiled:
            self.counts["spoiled"] += 1
            return
        self.counts["forward"] += 1
        if record.oracle is None:
            wrong = record.check(result, case) if record.check is not None else None
            if wrong:
                raise Failure("value", wrong.split(":")[0], wrong)
        else:
            self._compare(record, case, draw, ours, result)
        _check_unchanged(case, ours, given)

    def _compare(self, record: Record, case: Case, draw: Draw, ours: Made, result: Any) -> None:
        found = ours.outputs(result, record.returned)
        want = expected(record, case, np.float64)
        if want is None:
            return  # the oracle has no answer: the function may have one
        got = [alpha_array(value) for value in found]
        _check_kinds(record, case, got, want)
        if record.solves and is_extreme(case):
            self.counts["not compared"] += 1
            return
        for number, (a, w) in enumerate(zip(got, want, strict=True)):
            wrong = _differing(record, a, w, record.tolerance)
            if wrong is not None:
                judge_value(Comparison(record, case, draw, a, w, wrong, number), self.peer)
        outputs = [v for v in found if isinstance(v, alpha.Tensor) and v.dtype.kind == "f"]
        leaves = [base for base in case.bases() if base.requires_grad]
        if record.skips and any(np.isnan(w).any() for w in want):
            self.counts["not compared"] += 1  # where a value may be another, so may an activation's slope
        elif record.gradient and leaves and outputs:
            self._compare_gradients(record, case, draw, ours, outputs, leaves)

    def _compare_gradients(
        self, record: Record, case: Case, draw: Draw, ours: Made, outputs: list[Any], leaves: list[Base]
    ) -> None:
        if not any(v.requires_grad for v in outputs):
            raise Failure("gradient", "no graph", "the result does not require a gradient though an argument does")
        # What is outside the graph, such as running statistics, passes no gradient on, whatever it depends on.
        drawn = [(v, _upstream(v, draw)) for v in outputs]
        grads = [grad if v.requires_grad else np.zeros_like(grad) for v, grad in drawn]
        try:
            _backward(outputs, grads)
        except Exception as error:
            raise unclean(error, "backward ") from None
        self.counts["backward"] += 1
        mine = [_gradient(ours.leaves[base.key], base) for base in leaves]
        if self.peer is None or record.peer is None:
            place = draw.whole(0, len(leaves) - 1)
            if record.differences and case.ordinary and leaves[place].array.size and draw.chance(0.2):
                judge_by_differences(record, case, draw, leaves[place], mine[place], grads)
            return
        try:
            slopes = self.peer.gradients(record, case, self.peer.torch.float64, grads, leaves)
        except Exception:
            self.counts["refused by PyTorch"] += 1
            return
        met = {np.dtype(v.dtype) for v in outputs if np.dtype(v.dtype).kind == "f"}
        for number, (found, slope) in enumerate(zip(mine, slopes, strict=True)):
            # A tensor without axes may be wider than the dtype in which the arguments met, and were computed.
            got = found.astype(np.float32) if met == {np.dtype(np.float32)} else found
            wrong = _differing(record, got, slope, _for_gradients(record.tolerance))
            if wrong is not None:
                comparison = Comparison(record, case, draw, got, slope, wrong, number)
                self.counts["PyTorch is wrong"] += judge_gradient(comparison, self.peer, grads, leaves)


# -- the parts ---------------------------------------------------------------------------------------------------


def _check_kinds(record: Record, case: Case, got: list[Array], want: list[Array]) -> None:
    """Shapes and dtypes of the results."""
    if [a.shape for a in got] != [w.shape for w in want]:
        shapes = f"{[a.shape for a in got]} instead of {[w.shape for w in want]}"
        raise Failure("shape", compare.kinds(list(arrays(case))), shapes)
    dtypes = [result_dtype(record, case, w) for w in want]
    if [a.dtype.name for a in got] != dtypes:
        raise Failure("dtype", "", f"{[a.dtype.name for a in got]} instead of {dtypes}")


def _differing(record: Record, got: Array, want: Array, tolerance: compare.Tolerance) -> Array | None:
    """Where a result differs, if anywhere."""
    wrong = compare.differing(got, want, tolerance)
    if wrong is not None and record.skips:
        wrong = wrong & ~np.isnan(want)
    return wrong if wrong is not None and wrong.any() else None


def _ours(case: Case) -> Made:
    def tensor(base: Base) -> Any:
        out = alpha.tensor(base.array)
        return out.requires_grad_() if base.requires_grad else out

    return Made(case, tensor, lambda leaf: leaf.clone())


def _upstream(value: Any, draw: Draw) -> Array:
    """A gradient for a result, in row-major or reversed order of axes."""
    grad = draw.np.standard_normal(value.shape).astype(value.dtype)
    return np.asfortranarray(grad) if grad.ndim and draw.chance(0.3) else grad


def _backward(outputs: list[Any], grads: list[Array]) -> None:
    chosen = [(o, alpha.tensor(g)) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    if len(chosen) == 1:
        chosen[0][0].backward(chosen[0][1])
        return
    total = None
    for output, grad in chosen:
        part = (output * grad).sum()
        total = part if total is None else total + part
    if total is not None:
        total.backward()


def _gradient(leaf: Any, base: Base) -> Array:
    if leaf.grad is None:
        return np.zeros(base.array.shape, base.array.dtype)
    grad = alpha_array(leaf.grad)
    if grad.shape != base.array.shape or grad.dtype != base.array.dtype:
        wanted = f"{base.array.shape} {base.array.dtype}"
        raise Failure("gradient", "shape or dtype", f"{grad.shape} {grad.dtype} instead of {wanted}")
    return grad


def _for_gradients(tolerance: compare.Tolerance) -> compare.Tolerance:
    """Gradients go through twice the operations and are often summed over what was broadcast."""
    return compare.Tolerance(4 * tolerance.roundings, max(16, 4 * tolerance.sums), 4 * tolerance.unit, tolerance.reason)


def alpha_array(value: Any) -> Array:
    """A result as an array; Python numbers as arrays without axes."""
    if isinstance(value, alpha.Tensor):
        return np.asarray(value.detach().numpy())
    return np.asarray(value)


def _check_unchanged(case: Case, ours: Made, given: list[Array]) -> None:
    for base, before in zip(case.bases(), given, strict=True):
        after = alpha_array(ours.leaves[base.key])
        if after.shape != before.shape or after.tobytes() != before.tobytes():
            raise Failure("overwritten", "", f"an argument of shape {before.shape} was changed by the call")
