"""Elements: what lies in tensors and what loops compute in, as LLVM names it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.cpu.isa import HALVES
from alpha.dtypes import float64, is_bool, is_brain, is_float, is_half, is_stored, limits
from alpha.expressions.dropout import DRAWN_DTYPE

FLOAT, SIGNED, UNSIGNED, BOOL, DRAWN = "float", "signed", "unsigned", "bool", "drawn"
"""Kinds of elements; DRAWN: bools that lie in no memory, see ``alpha.expressions.dropout``."""

HALF, BRAIN = "half", "brain"
"""Kinds of float16 and bfloat16, which lie in memory as bits: loops compute in float32 and round what they store."""


class Element(NamedTuple):
    """A dtype.

    Attributes:
        kind: FLOAT, HALF, BRAIN, SIGNED or UNSIGNED integer, BOOL or DRAWN.
        bits: of one in memory.
    """

    kind: str
    bits: int

    @property
    def is_integer(self) -> bool:
        """Whether it counts."""
        return self.kind in (SIGNED, UNSIGNED)

    @property
    def is_half(self) -> bool:
        """Whether it is a float of 16 bits."""
        return self.kind in (HALF, BRAIN)

    @property
    def scalar(self) -> str:
        """LLVM's type of one in memory."""
        if self.kind != FLOAT:
            return f"i{self.bits}"
        return "float" if self.bits == 32 else "double"

    @property
    def suffix(self) -> str:
        """The end of the names of LLVM's functions of it."""
        return f"{'f' if self.kind == FLOAT else 'i'}{self.bits}"


BOOLS = Element(BOOL, 8)
SINGLE = Element(FLOAT, 32)


def has_loops(dtype: np.dtype[np.generic]) -> bool:
    """Whether point-wise loops read and write a dtype."""
    return not is_stored(dtype) or is_brain(dtype) or (is_half(dtype) and HALVES)


def converts(source: np.dtype[np.generic], target: np.dtype[np.generic]) -> bool:
    """Whether a loop converts numbers of one dtype to another as NumPy does: floats of 16 bits are rounded once."""
    if is_stored(source) or is_stored(target):
        return all(is_float(one) and has_loops(one) for one in (source, target)) and float64 not in (source, target)
    return True


def element_of(dtype: np.dtype[np.generic]) -> Element:
    """A dtype's."""
    bits = 8 * dtype.itemsize
    if dtype == DRAWN_DTYPE:
        return Element(DRAWN, bits)
    if is_float(dtype):
        return Element(BRAIN if is_brain(dtype) else HALF if is_half(dtype) else FLOAT, bits)
    if is_bool(dtype):
        return BOOLS
    return Element(SIGNED if limits(dtype)[0] < 0 else UNSIGNED, bits)
