"""PyTorch's older constructors: ``FloatTensor([1, 2])`` and its kin by dtype, and ``Tensor(data)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import dtypes, engines
from alpha.arguments import shape_of
from alpha.conversion import tensor
from alpha.errors import ArgumentError, described
from alpha.sizes import Size
from alpha.tensor import Tensor
from alpha.torch_types import TYPES


def made(name: str, args: tuple[Any, ...], dtype: np.dtype[Any], place: Any = None) -> Tensor:
    """An uninitialised tensor of lengths or of a Size, or one with a copy of a sequence, an array or a tensor.

    Without arguments it is empty. ArgumentError for a tuple of ints, which could be a shape or elements.
    """
    dtype = dtypes.as_dtype(dtype, name)
    if len(args) == 1 and type(args[0]) is tuple and args[0] and all(map(_is_int, args[0])):
        raise ArgumentError(
            f"[{name}] expected lengths or elements, got {args[0]}, which may be either: write {name}(*{args[0]}) "
            f"for a shape, {name}({list(args[0])}) for elements"
        )
    args = args[0] if len(args) == 1 and isinstance(args[0], Size) else args
    engine = engines.default_engine() if place is None else engines.resolve(place)
    if all(map(_is_int, args)):
        return engine.empty(shape_of(name, (args or (0,),)), dtype)
    if len(args) != 1 or isinstance(args[0], str | bytes | int | float | complex):
        given = ", ".join(described(one) for one in args)
        raise ArgumentError(f"[{name}] expected lengths, or one sequence, array or tensor, got {given}")
    return tensor(args[0], dtype, engine=engine)


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


class _Typed(type):
    """The class of the constructors: a call makes a tensor, and every tensor of the dtype is an instance."""

    dtype: np.dtype[Any]
    place: Any

    def __call__(cls, *args: Any) -> Any:
        return made(cls.__name__, args, cls.dtype, cls.place)

    def __instancecheck__(cls, value: Any) -> bool:
        is_there = isinstance(value, Tensor) and value.dtype == cls.dtype
        return is_there and (cls.place is None or value.engine is engines.resolve(cls.place))


def typed(first: str, place: Any = None) -> Any:
    """The constructor of a kind of tensors, such as "Float": on the default engine, or on that of a place."""
    known = {str(dtype): dtype for dtype in dtypes.TABLE}
    return _Typed(f"{first}Tensor", (), {"dtype": known[TYPES[first]], "place": place})


BFloat16Tensor, BoolTensor, ByteTensor, CharTensor = typed("BFloat16"), typed("Bool"), typed("Byte"), typed("Char")
DoubleTensor, FloatTensor, HalfTensor = typed("Double"), typed("Float"), typed("Half")
IntTensor, LongTensor, ShortTensor = typed("Int"), typed("Long"), typed("Short")
