"""What a call must give: its arguments in NumPy, converted as the documentation says, and the oracle's results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.robustness.cases import Base, Case, Input, walk
from tests.robustness.record import Record

Array = np.ndarray[Any, Any]
Change = Callable[[Array], Array]

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"}
"""Functions, and operators of Python's, that compare."""

MEETING = {"bool": 0, "uint8": 1, "int32": 2, "int64": 3, "float32": 4, "float64": 5}
"""The order in which dtypes meet, as the documentation gives it."""

CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}


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


def arrays(case: Case) -> Iterator[Array]:
    """The arrays and float numbers among the arguments."""
    for value in case.inputs():
        yield value.numpy()
    for value in [*case.args, *case.options.values()]:
        if isinstance(value, float):
            yield np.array(value)


def expected(
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

    given = met(record, case) if record.meets else case
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


def met(record: Record, case: Case) -> Case:
    """The case with its arrays in the dtype in which they and the numbers meet, as the documentation says."""
    dtype = common(record, case)
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


def common(record: Record, case: Case) -> str:
    """The dtype in which a case's tensors and numbers meet: tensors without axes give way but to a lower category."""
    dtype = ""
    for axes in (True, False):
        names = [i.dtype.name for i in case.inputs() if bool(i.shape) == axes]
        found = max(names, key=MEETING.__getitem__, default="")
        if not dtype or (found and CATEGORY[np.dtype(found).kind] > CATEGORY[np.dtype(dtype).kind]):
            dtype = found
    if CATEGORY[np.dtype(dtype).kind] == 1 and record.name.rpartition(".")[2] in COMPARISONS:
        dtype = max((i.dtype.name for i in case.inputs()), key=MEETING.__getitem__)  # integers by their values
    for value in case.args:
        if isinstance(value, bool | int | float):
            scalar = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
            if CATEGORY[np.dtype(scalar).kind] > CATEGORY[np.dtype(dtype).kind]:
                dtype = scalar
    return dtype


def result_dtype(record: Record, case: Case, want: Array) -> str:
    """The dtype that a result must have, from the oracle's."""
    if record.result is not None and want.dtype.kind != "b":
        found = record.result(case)
        if found is not None:
            return found
    written = [base for base in case.bases() if base.copied]
    if written and not record.returned:
        return str(written[0].array.dtype.name)
    if want.dtype.kind == "f" and record.meets:
        found = common(record, case)
        return found if found.startswith("float") else "float32"
    if want.dtype.kind == "f":
        return "float64" if any(i.dtype == np.float64 for i in case.inputs()) else "float32"
    return str(want.dtype.name)


def is_extreme(case: Case) -> bool:
    """Whether numbers are so large or small that squares and products of them leave float32."""
    with np.errstate(all="ignore"):
        for array in arrays(case):
            if array.dtype.kind == "f" and array.size:
                size = np.abs(array)
                if (np.isfinite(size) & ((size > 1e9) | ((size < 1e-9) & (size > 0)))).any():
                    return True
    return False
