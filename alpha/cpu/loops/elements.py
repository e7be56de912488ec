"""Elements: what lies in tensors and what loops compute in, as LLVM names it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.dtypes import is_bool, is_float, limits
from alpha.expressions.dropout import DRAWN_DTYPE

FLOAT, SIGNED, UNSIGNED, BOOL, DRAWN = "float", "signed", "unsigned", "bool", "drawn"
"""Kinds of elements; DRAWN: bools that lie in no memory, see ``alpha.expressions.dropout``."""


class Element(NamedTuple):
    """A dtype.

    Attributes:
        kind: FLOAT, SIGNED or UNSIGNED integer, BOOL or DRAWN.
        bits: of one in memory.
    """

    kind: str
    bits: int

    @property
    def is_integer(self) -> bool:
        """Whether it counts."""
        return self.kind in (SIGNED, UNSIGNED)

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


def element_of(dtype: np.dtype[np.generic]) -> Element:
    """A dtype's."""
    bits = 8 * dtype.itemsize
    if dtype == DRAWN_DTYPE:
        return Element(DRAWN, bits)
    if is_float(dtype):
        return Element(FLOAT, bits)
    if is_bool(dtype):
        return BOOLS
    return Element(SIGNED if limits(dtype)[0] < 0 else UNSIGNED, bits)
