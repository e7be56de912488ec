"""The dtypes a Tensor may have: one table of what the framework needs to know of each, and how two of them combine.

A new dtype is a row of ``TABLE``. Nothing elsewhere compares with a dtype's name or lists several: it asks the table
(``info``, ``is_float``, ``FLOATS``). What an engine computes with its own kernels is the engine's to extend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from alpha.errors import DtypeError, described

DType = np.dtype[Any]

float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
uint8 = np.dtype(np.uint8)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
bool_ = np.dtype(np.bool_)

int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)

default_float: DType = float32
"""The dtype of Python's floats, of floats made from integers, and of tensors made without a dtype."""
default_int = int64
"""The dtype of Python's ints, of indices and class labels, and of the sums of integers."""
widest_float = float64
"""The dtype of statistics that are rounded once at the end: norms, means and variances of whole layers."""

NOTHING, BOOL, INTEGER, FLOAT, COMPLEX = range(-1, 4)
"""Categories: of two dtypes the one of the higher category wins, whatever their sizes. NOTHING: no number at all."""


@dataclass(frozen=True, slots=True)
class Info:
    """What the framework needs to know of a dtype.

    Attributes:
        category: BOOL, INTEGER, FLOAT or COMPLEX. Gradients flow through the last two.
        total: the dtype in which sums, products and running sums come.
        accumulator: the dtype in which they are added up, at least.
        safetensors: its name in safetensors files.
        c_name: its name in CUDA kernels.
        vector: numbers that the CUDA kernels of layers read at once where memory allows it: 16 bytes, or one number.
        digits: binary digits of a float's significand; 0 for others.
        tolerance: rtol and atol that ``alpha.testing.assert_close`` grants a result of the dtype.
        computed: the dtype that engines compute in, whose result is converted back; None where they have loops of the
            dtype itself.
    """

    category: int
    total: DType
    accumulator: DType
    safetensors: str
    c_name: str
    vector: int = 1
    digits: int = 0
    tolerance: tuple[float, float] = (0.0, 0.0)
    computed: DType | None = None


TABLE: dict[DType, Info] = {
    # Tolerances: about a hundred roundings of 2 ** -24, what a product of a few hundred terms or a chain of functions
    # gathers; as many of 2 ** -53, with room for references that sum in another order.
    float32: Info(FLOAT, float32, float64, "F32", "float", vector=4, digits=24, tolerance=(1e-5, 1e-6)),
    float64: Info(FLOAT, float64, float64, "F64", "double", digits=53, tolerance=(1e-12, 1e-13)),
    uint8: Info(INTEGER, int64, int64, "U8", "uint8"),
    int32: Info(INTEGER, int64, int64, "I32", "int"),
    int64: Info(INTEGER, int64, int64, "I64", "int64"),
    bool_: Info(BOOL, int64, int64, "BOOL", "bool"),
    int8: Info(INTEGER, int64, int64, "I8", "int8", computed=int32),
    int16: Info(INTEGER, int64, int64, "I16", "int16", computed=int32),
    uint16: Info(INTEGER, int64, int64, "U16", "uint16", computed=int32),
    uint32: Info(INTEGER, int64, int64, "U32", "uint32", computed=int64),
    # A hundred roundings would leave little of these: tolerances are about ten.
    float16: Info(FLOAT, float16, float32, "F16", "half", digits=11, tolerance=(5e-3, 1e-3), computed=float32),
    bfloat16: Info(FLOAT, bfloat16, float32, "BF16", "bfloat16", digits=8, tolerance=(4e-2, 1e-2), computed=float32),
    # Engines have no loops of complex numbers; NumPy computes them (alpha/complex_numbers.py).
    complex64: Info(COMPLEX, complex64, complex128, "C64", "", tolerance=(1e-5, 1e-6), computed=complex64),
    complex128: Info(COMPLEX, complex128, complex128, "", "", tolerance=(1e-12, 1e-13), computed=complex128),
}

ALL = tuple(dtype for dtype, row in TABLE.items() if row.computed is None)
"""Those that engines have loops of."""
FLOATS = tuple(dtype for dtype in ALL if TABLE[dtype].category == FLOAT)
STORED = frozenset(dtype for dtype, row in TABLE.items() if row.computed is not None)
"""Those that are stored as they are and computed in another dtype."""

DtypeLike = Any
"""Whatever ``numpy.dtype`` takes: ``alpha.float32``, ``numpy.float32``, ``"float32"``, ``float``."""


def as_dtype(value: DtypeLike, function: str = "dtype") -> DType:
    """One of the table's dtypes; DtypeError for anything else. Python's ``float`` means float64, ``int`` int64."""
    if value is default_float:
        return default_float  # type: ignore[no-any-return]
    try:
        dtype = np.dtype(value)
    except Exception as error:  # NumPy raises what it meets on the way
        raise DtypeError(f"[{function}] expected a dtype, got {described(value)}: one of {names()}") from error
    row = TABLE.get(dtype)
    if row is None:
        raise DtypeError(f"[{function}] expected one of the dtypes {names()}, got {dtype}: convert the array first")
    if row.computed is not None:
        announce_stored()
    return dtype


_WAITING: list[Callable[[], None]] = []
_STORED_CAME_UP: list[bool] = []
"""Not empty once a dtype that is only stored has come up."""


def when_stored(function: Callable[[], None]) -> None:
    """Calls a function when a dtype that is only stored comes up for the first time; at once if one has.

    An interrupted call is made again.
    """
    _WAITING.append(function)
    if _STORED_CAME_UP:
        announce_stored()


def announce_stored() -> None:
    """Says that tensors of a dtype that is only stored are about to be made."""
    if not _STORED_CAME_UP:
        _STORED_CAME_UP.append(True)
    while _WAITING:
        _WAITING[-1]()
        _WAITING.pop()


def names() -> str:
    """The dtypes' names, for messages."""
    return ", ".join(map(str, TABLE))


def float_names() -> str:
    """The names of the floats that engines compute in, for messages: "float32 or float64"."""
    return " or ".join(str(dtype) for dtype in FLOATS)


def info(dtype: DType) -> Info:
    """The table's row of a dtype."""
    return TABLE[dtype]


_CATEGORIES = {"b": BOOL, "i": INTEGER, "u": INTEGER, "f": FLOAT, "c": COMPLEX}
"""Categories by NumPy's letters for kinds of dtypes, for those that are not in the table."""


def category(dtype: DType) -> int:
    """BOOL, INTEGER or FLOAT; NOTHING where an array of the dtype holds no such numbers. Of any NumPy dtype."""
    try:
        return TABLE[dtype].category
    except KeyError:
        return _CATEGORIES.get(dtype.kind, NOTHING)


def is_float(dtype: DType) -> bool:
    """Whether it has fractions: gradients flow through the table's floats. Of any NumPy dtype, as the two below."""
    row = TABLE.get(dtype)  # called often: not through ``category``
    return row.category == FLOAT if row is not None else dtype.kind == "f"


def is_complex(dtype: DType) -> bool:
    """Whether its numbers have two parts."""
    return category(dtype) == COMPLEX


def has_gradients(dtype: DType) -> bool:
    """Whether gradients flow through it: floats and complex numbers."""
    return category(dtype) >= FLOAT


def is_stored(dtype: DType) -> bool:
    """Whether engines have no loops of it: see ``Info.computed``."""
    return dtype in STORED


def is_half(dtype: DType) -> bool:
    """Whether it is a float of 16 bits."""
    return dtype in (bfloat16, float16)


def is_brain(dtype: DType) -> bool:
    """Whether its bits are the upper half of float32's."""
    return bool(dtype == bfloat16)


def computed_in(dtype: DType) -> DType:
    """The dtype that engines compute a dtype in: itself but for those that are stored alone."""
    return TABLE[dtype].computed or dtype


def is_integer(dtype: DType) -> bool:
    """Whether it counts: signed or unsigned, not bool."""
    return category(dtype) == INTEGER


def is_bool(dtype: DType) -> bool:
    """Whether it is bool."""
    return category(dtype) == BOOL


def holds_numbers(dtype: DType) -> bool:
    """Whether an array of the dtype holds numbers or bools. Of any NumPy dtype."""
    return category(dtype) != NOTHING


def is_whole(dtype: DType) -> bool:
    """Whether it holds whole numbers alone: bools and integers."""
    return category(dtype) in (BOOL, INTEGER)


def of_safetensors(code: str) -> DType | None:
    """The dtype of a name in safetensors files; None where no row has it."""
    found = next((dtype for dtype, row in TABLE.items() if row.safetensors == code), None)
    return None if found is None else as_dtype(found)


@cache
def limits(dtype: DType) -> tuple[float, float]:
    """The least and the largest finite number that a dtype holds; of bools and integers as ints."""
    if has_gradients(dtype):
        found = finfo(dtype)
        return float(found.min), float(found.max)
    return (0, 1) if is_bool(dtype) else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def scalar(dtype: DType, value: float) -> Any:
    """A Python number in a float dtype; one beyond its range is infinite, of which NumPy is not to warn."""
    least, most = limits(dtype)
    if least <= value <= most:
        return dtype.type(value)
    with np.errstate(over="ignore"):
        return dtype.type(value)


def finfo(dtype: DtypeLike | None = None) -> np.finfo[Any]:
    """What a float dtype, by default the default one, can tell apart: ``eps``, ``max``, ``min``, ``tiny``, ``bits``.

    Of complex numbers what is said of their parts.
    """
    kind = default_float if dtype is None else as_dtype(dtype, "finfo")
    if not has_gradients(kind):
        raise DtypeError(f"[finfo] expected {float_names()}, got {kind}: iinfo tells of integers")
    found: np.finfo[Any] = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    return found


def iinfo(dtype: DtypeLike) -> np.iinfo[Any]:
    """The range of an integer dtype: ``min``, ``max``, ``bits``."""
    kind = as_dtype(dtype, "iinfo")
    if not is_integer(kind):
        raise DtypeError(f"[iinfo] expected an integer dtype, got {kind}: finfo tells of floats")
    return np.iinfo(kind)


_PARTS: dict[DType, DType] = {complex64: float32, complex128: float64}
"""The dtypes of complex numbers' parts."""


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts are floats of a dtype: complex64 but for float64."""
    announce_stored()
    return complex128 if dtype == float64 else complex64


def real_of(dtype: DType) -> DType:
    """The dtype of a complex dtype's parts; another dtype itself."""
    return _PARTS.get(dtype, dtype)


def get_default_dtype() -> DType:
    """The dtype of Python's floats, and of tensors that are made without a dtype: see ``set_default_dtype``."""
    return default_float


def set_default_dtype(dtype: DtypeLike) -> None:
    """From now on tensors of Python's floats, and those made without a dtype, have this float dtype; float32 at first.

    So have layers' parameters, and floats that are made of integers. DtypeError unless it is a float dtype.
    """
    global default_float
    kind = as_dtype(dtype, "set_default_dtype")
    if not is_float(kind):
        raise DtypeError(f"[set_default_dtype] expected {float_names()}, got {kind}: take a float dtype")
    default_float = kind


def default_or(function: str, dtype: DtypeLike | None) -> DType:
    """A dtype that was given, or the default one."""
    return default_float if dtype is None else as_dtype(dtype, function)


# -- how dtypes combine ------------------------------------------------------------------------------------------


def of_scalar(value: bool | int | float | complex) -> DType:
    """The dtype of a Python number: bool, int64, the default float, or the complex dtype of two such."""
    if type(value) is float:
        return default_float
    if isinstance(value, complex | np.complexfloating):
        return complex_of(default_float)
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return default_int
    return default_float


def promote(first: DType, second: DType) -> DType:
    """The dtype in which two tensors meet: that of the higher category, in one category the wider.

    So bool < uint8 < int32 < int64 < float32 < float64, as in PyTorch. Where neither of two holds the other's numbers
    it is the next that holds both: float32 of float16 and bfloat16, int16 of int8 and uint8, complex128 of float64 and
    complex64.
    """
    if first is second:
        return first
    one, other = TABLE[first].category, TABLE[second].category
    if one != other:
        higher, lower = (first, second) if one > other else (second, first)
        return complex128 if COMPLEX in (one, other) and lower == float64 else higher
    if one == INTEGER and (limits(first)[0] < 0) != (limits(second)[0] < 0):
        signed, unsigned = (first, second) if limits(first)[0] < 0 else (second, first)
        return signed if signed.itemsize > unsigned.itemsize else np.dtype(f"int{min(64, 16 * unsigned.itemsize)}")
    if first.itemsize == second.itemsize:
        return first if first == second else float32
    return first if first.itemsize > second.itemsize else second


def combine(*dtypes: DType | None) -> DType:
    """The dtype of a result from the strongest to the weakest of its operands' dtypes, None where there are none.

    A weaker one counts only by a higher category: tensors with axes come first, then those without axes, then Python
    numbers (PyTorch's rule). Where all are None the result is bool.
    """
    result, reached = bool_, -1
    for dtype in dtypes:
        if dtype is not None and TABLE[dtype].category > reached:
            category = TABLE[dtype].category
            result = promote(result, dtype) if category == COMPLEX and reached == FLOAT else dtype
            reached = category
    return result


def of_tensors(tensors: Iterable[tuple[tuple[int, ...], DType]]) -> DType:
    """The dtype in which tensors meet, by their shapes and dtypes, at least one: see ``combine``."""
    found: list[DType | None] = [None, None]
    for shape, dtype in tensors:
        place = 0 if shape else 1
        before = found[place]
        found[place] = dtype if before is None else promote(before, dtype)
    return combine(*found)
