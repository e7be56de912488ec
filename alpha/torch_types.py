"""PyTorch's names for the types of tensors and storages: "FloatTensor", "LongStorage"."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.dtypes import as_dtype
from alpha.errors import DtypeError

TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8",
    "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
"""PyTorch's dtypes by the first part of the names of their storages."""


def type_of(dtype: np.dtype[Any]) -> str:
    """The first part of the name of PyTorch's type of tensors of a dtype: "Float" of "FloatTensor"."""
    known = {name: first for first, name in TYPES.items()}
    return known.get(str(dtype), str(dtype).replace("uint", "UInt"))


def dtype_of(name: str) -> np.dtype[Any] | None:
    """The reverse of ``type_of``; None for a name that is no type's, or of one whose dtype there is not."""
    if name not in TYPES and not name.startswith("UInt"):
        return None
    try:
        return as_dtype(TYPES.get(name, name.lower()))
    except DtypeError:
        return None
