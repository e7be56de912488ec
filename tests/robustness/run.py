"""One call: made by the engine, by the oracle and by PyTorch, forward and backward, and compared."""

from __future__ import annotations

import math
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import alpha
from alpha.errors import AlphaError
from tests.robustness import compare
from tests.robustness.cases import Base, Case, Draw, Input, source, walk
from tests.robustness.record import Record
from tests.robustness.spoil import spoiled

Array = np.ndarray[Any, Any]

MESSAGE = re.compile(r"^\[[^\]\s]+\] expected .+?, got ", re.S)
"""The form of every error's message."""

MEETING = {"bool": 0, "uint8": 1, "int32": 2, "int64": 3, "float32": 4, "float64": 5}
"""The order in which dtypes meet, as the documentation gives it."""

CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}


@dataclass
class Fault:
    """What went wrong in one call.

    Attributes:
        kind: "crash", "hang", "unclean" (an error of the wrong class or form), "refused" (an error where there is a
            result), "value", "gradient", "shape", "overwritten" (an argument changed) or "memory".
        detail: what differs; ``what`` is the part of it that tells it from other faults of this function.
    """

    index: int
    record: str
    kind: str
    what: str
    detail: str
    size: int
    text: str

    @property
    def signature(self) -> tuple[str, str, str]:
        """Calls with the same signature count as one fault."""
        return self.record, self.kind, self.what


class Failure(Exception):
    """A call that went wrong: (kind, what, detail)."""


class Made:
    """A case's arguments as tensors of one framework, and their leaves."""

    def __init__(self, case: Case, tensor: Callable[[Base], Any], copy: Callable[[Any], Any]) -> None:
        self.leaves: dict[int, Any] = {}
        self.written: dict[int, Any] = {}
        views: dict[int, Any] = {}

        def make(value: Input) -> Any:
            key = value.base.key
            if key not in self.leaves:
                self.leaves[key] = tensor(value.base)
                if value.base.copied:
                    self.written[key] = copy(self.leaves[key])
            if id(value) not in views:
                views[id(value)] = value.follow(self.written.get(key, self.leaves[key]))
            return views[id(value)]

        self.args, self.options = walk(case.args, make), walk(case.options, make)

    def outputs(self, result: Any, returned: bool) -> list[Any]:
        """The results, or what was written where anything was, or (``returned``) both."""
        results = list(result) if isinstance(result, tuple | list) else [result]
        return [*(results if returned or not self.written else []), *self.written.values()]


class Runner:
    """Makes calls of records one after another.

    Args:
        torch: PyTorch, or None.
    """

    def __init__(self, records: list[Record], seed: int, torch: Any = None, limit: int | None = None) -> None:
        self.records, self.seed, self.torch, self.limit = records, seed, torch, limit
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
            own = record.name.startswith(("alpha.Tensor.", "operator."))
            case = spoiled(case, draw, 1 if own else 0)
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
        alpha.manual_seed(draw.int(0, 1000))
        ours = _ours(case)
        given = [base.array.copy() for base in case.bases()]
        try:
            result = record.function()(*ours.args, **ours.options)
        except AlphaError as error:
            _check_message(error)
            if case.valid and not case.spoiled:
                what = f"{type(error).__name__} {compare.kinds(given)}"
                raise Failure("refused", what, f"{type(error).__name__}: {error}") from None
            self.counts["refused as expected"] += 1
            return
        except Exception as error:
            if case.spoiled and isinstance(error, TypeError) and _is_signature(error):
                self.counts["refused as expected"] += 1
                return
            raise _unclean(error, "") from None
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
        want = _expected(record, case, np.float64)
        if want is None:
            return  # the oracle has no answer: the function may have one
        got = [alpha_array(value) for value in found]
        if [a.shape for a in got] != [w.shape for w in want]:
            shapes = f"{[a.shape for a in got]} instead of {[w.shape for w in want]}"
            raise Failure("shape", compare.kinds(list(_arrays(case))), shapes)
        dtypes = [_dtype(record, case, w) for w in want]
        if [a.dtype.name for a in got] != dtypes:
            raise Failure("dtype", "", f"{[a.dtype.name for a in got]} instead of {dtypes}")
        if record.solves and _is_extreme(case):
            self.counts["not compared"] += 1
            return
        differentiable = [v for v in found if isinstance(v, alpha.Tensor) and v.dtype.kind == "f"]
        leaves = [base for base in case.bases() if base.requires_grad]
        backward = record.gradient and bool(leaves) and bool(differentiable)
        for number, (a, w) in enumerate(zip(got, want, strict=True)):
            wrong = compare.differing(a, w, record.tolerance)
            if wrong is not None and record.skips:
                wrong &= ~np.isnan(w)
            if wrong is not None and wrong.any():
                self._judge("value", record, case, draw, a, w, wrong, number)
        if not backward:
            return
        if not any(v.requires_grad for v in differentiable):
            raise Failure("gradient", "no graph", "the result does not require a gradient though an argument does")
        grads = [_upstream(v, draw) for v in differentiable]
        try:
            _backward(differentiable, grads)
        except Exception as error:
            raise _unclean(error, "backward ") from None
        self.counts["backward"] += 1
        if self.torch is not None and record.peer is not None:
            try:
                slopes = self._peer_backward(*self._peer(record, case, self.torch.float64), grads, leaves)
            except Exception:
                self.counts["refused by PyTorch"] += 1
                return
            for base, slope in zip(leaves, slopes, strict=True):
                mine = _gradient(ours.leaves[base.key], base)
                wrong = compare.differing(mine, slope, _for_gradients(record.tolerance))
                if wrong is not None and record.skips:
                    wrong &= ~np.isnan(slope)
                if wrong is not None and wrong.any():
                    number = leaves.index(base)
                    self._judge("gradient", record, case, draw, mine, slope, wrong, number, (grads, leaves))
        elif record.differences and case.ordinary and draw.chance(0.2):
            self._differences(record, case, draw, ours, grads, leaves)

    def _judge(
        self,
        kind: str,
        record: Record,
        case: Case,
        draw: Draw,
        got: Array,
        want: Array,
        wrong: Array,
        number: int,
        backward: tuple[list[Array], list[Base]] | None = None,
    ) -> None:
        """Raises unless what is off by more than the tolerance is what the dtype and the arguments allow."""
        if got.dtype.kind == "f":
            if self.torch is not None and record.peer is not None:
                try:
                    dtype = self.torch.float32 if got.dtype == np.float32 else self.torch.float64
                    made, outputs = self._peer(record, case, dtype)
                    if backward is None:
                        near = _torch_array(outputs[number])
                    else:
                        near = self._peer_backward(made, outputs, *backward)[number]
                    wrong = wrong & ~compare.as_good(got, want, near)
                except Exception:
                    pass  # PyTorch refuses what we accept
            if backward is None and wrong.any():
                same = _expected(record, case, np.dtype(got.dtype))
                if same is not None:
                    wrong = wrong & ~compare.as_good(got, want, same[number])
        elif self.torch is not None and record.peer is not None and backward is None:
            # Positions and truths follow from float results, which a rounding may turn.
            try:
                _, outputs = self._peer(record, case, None)
                near = _torch_array(outputs[number])
                wrong = wrong & (got != near)
            except Exception:
                pass
        if got.dtype.kind != "f" and wrong.any():
            same = _expected(record, case, None)
            if same is not None and same[number].shape == got.shape:
                wrong = wrong & (got != same[number])
        if got.dtype.kind == "f" and wrong.any():
            eps = float(np.finfo(got.dtype).eps)
            with np.errstate(all="ignore"):
                if backward is None:

                    def oracle(change: Callable[[Array], Array]) -> Array:
                        found = _expected(record, case, np.float64, change)
                        return want if found is None else found[number]

                    wrong = compare.conditioned(got, want, wrong, oracle, draw.np, eps)
                elif self.torch is not None:

                    def slope(change: Callable[[Array], Array]) -> Array:
                        made, outputs = self._peer(record, case, self.torch.float64, change)
                        grads, leaves = backward
                        moved = [change(g.astype(np.float64)) for g in grads]
                        return self._peer_backward(made, outputs, moved, leaves)[number]

                    wrong = compare.conditioned(got, want, wrong, slope, draw.np, eps)
        if wrong.any() and backward is not None and record.oracle is not None and record.differences:
            base, grads = backward[1][number], backward[0]
            if self._confirmed(record, case, base, grads, got, want, wrong):
                self.counts["PyTorch is wrong"] += 1
                return
        if wrong.any():
            what = f"{compare.kinds(list(_arrays(case)))}"
            raise Failure(kind, what, f"output {number}: {compare.describe(got, want, wrong)}")

    # -- PyTorch

    def _peer(
        self, record: Record, case: Case, dtype: Any, change: Callable[[Array], Array] | None = None
    ) -> tuple[Made, list[Any]]:
        """The call in PyTorch: floats in a dtype, or in their own where it is None."""
        torch = self.torch

        def tensor(base: Base) -> Any:
            array = np.ascontiguousarray(base.array).reshape(base.array.shape)
            if change is not None and array.dtype.kind == "f":
                array = np.asarray(change(array.astype(np.float64)))
            out = torch.from_numpy(array.copy())
            if array.dtype.kind == "f":
                if dtype is not None:
                    out = out.to(dtype)
                out.requires_grad_(base.requires_grad)
            return out

        made = Made(_met(case) if record.meets else case, tensor, lambda leaf: leaf.clone())
        assert record.peer is not None
        result = record.peer(torch, *made.args, **made.options)
        return made, made.outputs(result, record.returned)

    def _peer_backward(self, made: Made, outputs: list[Any], grads: list[Array], leaves: list[Base]) -> list[Array]:
        torch = self.torch
        floats = [o for o in outputs if o.is_floating_point()]
        upstream = [torch.from_numpy(g.astype(np.float64)).to(o.dtype) for g, o in zip(grads, floats, strict=True)]
        chosen = [(o, g) for o, g in zip(floats, upstream, strict=True) if o.requires_grad]
        if chosen:
            torch.autograd.backward([o for o, _ in chosen], [g for _, g in chosen])
        found = []
        for base in leaves:
            grad = made.leaves[base.key].grad
            found.append(np.zeros(base.array.shape) if grad is None else grad.numpy())
        return found

    # -- differences

    def _confirmed(
        self, record: Record, case: Case, base: Base, grads: list[Array], got: Array, want: Array, wrong: Array
    ) -> bool:
        """Whether differences of the oracle are on our side and not on PyTorch's, along where the two differ."""
        with np.errstate(all="ignore"):
            gap = np.where(wrong, got.astype(np.float64) - want, 0)
            direction = gap / np.abs(gap).max()
            if not np.isfinite(direction).all():
                return False
            slope = self._slope(record, case, base, grads, direction, 1e-5)
            if slope is None:
                return False
            ours, theirs = abs(float((got * direction).sum()) - slope), abs(float((want * direction).sum()) - slope)
            coarse = 1e-5 if got.dtype == np.float32 else 1e-9
            noise = coarse * (sum(float(np.abs(g).sum()) for g in grads) + 1)
            return ours <= max(0.1 * theirs, noise)

    def _slope(
        self, record: Record, case: Case, base: Base, grads: list[Array], direction: Array, step: float
    ) -> float | None:
        """The slope of the oracle's results times ``grads`` along a direction of one base, by differences."""
        original, values = base.array, []
        try:
            for sign in (1, -1):
                base.array = np.asarray(original.astype(np.float64) + sign * step * direction)
                want = _expected(record, case, np.float64)
                if want is None:
                    return None
                floats = [w for w in want if w.dtype.kind == "f"]
                values.append(sum(float((w * g).sum()) for w, g in zip(floats, grads, strict=True)))
        finally:
            base.array = original
        return (values[0] - values[1]) / (2 * step)

    def _differences(
        self, record: Record, case: Case, draw: Draw, ours: Made, grads: list[Array], leaves: list[Base]
    ) -> None:
        """The gradient along one direction against differences of the oracle, where these agree for two steps."""
        base = draw.pick(leaves)
        if base.array.size == 0:
            return
        direction = np.asarray(draw.np.standard_normal(base.array.shape))
        coarse, fine = (self._slope(record, case, base, grads, direction, step) for step in (1e-4, 3e-5))
        if coarse is None or fine is None:
            return
        mine = _gradient(ours.leaves[base.key], base).astype(np.float64)
        along = float((mine * direction).sum())
        size = float(np.abs(mine * direction).sum()) + abs(fine) + 1e-3
        if not math.isfinite(coarse + fine) or abs(coarse - fine) > 1e-4 * size:
            return  # a kink, or too steep
        if not abs(along - fine) <= 3e-3 * size:
            raise Failure("gradient", "differences", f"{along!r} along a direction, differences give {fine!r}")


# -- the parts ---------------------------------------------------------------------------------------------------


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


def _torch_array(value: Any) -> Array:
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)


def _arrays(case: Case) -> Any:
    for value in case.inputs():
        yield value.numpy()
    for value in [*case.args, *case.options.values()]:
        if isinstance(value, float):
            yield np.array(value)


def _expected(
    record: Record, case: Case, dtype: Any, change: Callable[[Array], Array] | None = None
) -> list[Array] | None:
    """The oracle's results; None where it has none. Floats are in a dtype, or in their own where it is None."""
    copies: dict[int, Array] = {}

    def array(value: Input) -> Array:
        base = value.base.array
        key = id(value.base)
        if key not in copies:
            if base.dtype.kind == "f":
                wide = base.astype(base.dtype if dtype is None else dtype)
                copies[key] = np.asarray(change(wide)) if change is not None else wide
            else:
                copies[key] = base.copy()
        return value.numpy(copies[key])

    given = _met(case) if record.meets else case
    with np.errstate(all="ignore"):
        try:
            args, options = walk(given.args, array), walk(given.options, array)
            assert record.oracle is not None
            result = record.oracle(*args, **options)
        except (ValueError, IndexError, ZeroDivisionError, OverflowError, FloatingPointError):
            if case.valid:
                raise
            return None
    written = [copies[id(base)] for base in given.bases() if base.copied]
    several = result if isinstance(result, tuple | list) else [result]
    return [*([np.asarray(r) for r in several] if record.returned or not written else []), *written]


def _met(case: Case) -> Case:
    """The case with its arrays in the dtype in which they and the numbers meet, as the documentation says."""
    dtype = common(case)
    done: dict[int, Base] = {}

    def meet(value: Input) -> Input:
        base = value.base
        if id(base) not in done:
            with np.errstate(all="ignore"):
                array = base.array.astype(dtype)
            done[id(base)] = Base(array, base.requires_grad, base.copied, base)
        return Input(done[id(base)], value.steps)

    args = walk(case.args, meet)
    if CATEGORY[np.dtype(dtype).kind] == 1:  # a number takes the tensor's dtype, and wraps around
        args = [np.int64(a).astype(dtype).item() if isinstance(a, bool | int) else a for a in args]
    return Case(args, walk(case.options, meet), case.valid)


def common(case: Case) -> str:
    """The dtype in which a case's tensors and numbers meet."""
    dtype = max((i.dtype.name for i in case.inputs()), key=MEETING.__getitem__)
    for value in case.args:
        if isinstance(value, bool | int | float):
            scalar = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
            if CATEGORY[np.dtype(scalar).kind] > CATEGORY[np.dtype(dtype).kind]:
                dtype = scalar
    return dtype


def _dtype(record: Record, case: Case, want: Array) -> str:
    """The dtype that a result must have, from the oracle's."""
    if record.result is not None and want.dtype.kind != "b":
        found = record.result(case)
        if found is not None:
            return found
    written = [base for base in case.bases() if base.copied]
    if written and not record.returned:
        return written[0].array.dtype.name
    if want.dtype.kind == "f":
        return "float64" if any(i.dtype == np.float64 for i in case.inputs()) else "float32"
    return want.dtype.name


def _is_extreme(case: Case) -> bool:
    """Whether numbers are so large or small that squares and products of them leave float32."""
    with np.errstate(all="ignore"):
        for array in _arrays(case):
            if array.dtype.kind == "f" and array.size:
                size = np.abs(array)
                if (np.isfinite(size) & ((size > 1e9) | ((size < 1e-9) & (size > 0)))).any():
                    return True
    return False


def _check_unchanged(case: Case, ours: Made, given: list[Array]) -> None:
    for base, before in zip(case.bases(), given, strict=True):
        after = alpha_array(ours.leaves[base.key])
        if after.shape != before.shape or after.tobytes() != before.tobytes():
            raise Failure("overwritten", "", f"an argument of shape {before.shape} was changed by the call")


def _check_message(error: AlphaError) -> None:
    if not MESSAGE.match(str(error)):
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise Failure("unclean", f"message at {place.name}", f"{type(error).__name__} without the form: {error}")


def _unclean(error: Exception, phase: str) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "site-packages" not in f.filename), frames[-1])
    if isinstance(error, AlphaError):
        return Failure("refused", f"{phase}{type(error).__name__}", f"{phase}{type(error).__name__}: {error}")
    what = f"{phase}{type(error).__name__} in {place.name}"
    return Failure(
        "unclean", what, f"{phase}{type(error).__name__}: {str(error)[:300]} ({place.filename}:{place.lineno})"
    )


def _is_signature(error: TypeError) -> bool:
    """Whether Python itself refused the arguments at the call, as for any function."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None


def debugging() -> bool:
    """Whether a tracer runs, under which deadlines mean nothing."""
    return sys.gettrace() is not None
