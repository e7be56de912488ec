"""The Python array API standard: ``xp = x.__array_namespace__()``, or ``from alpha import array_api as xp``.

The functions take and return Tensors. They are alpha's under the standard's names, with its arguments and its rule for
dtypes; gradients flow through them. https://data-apis.org/array-api
"""

from __future__ import annotations

import math

from alpha.array_api import creation, data_types, elementwise, fft, linalg, manipulation, searching, statistics
from alpha.array_api.creation import *  # noqa: F403
from alpha.array_api.data_types import *  # noqa: F403
from alpha.array_api.elementwise import *  # noqa: F403
from alpha.array_api.info import __array_namespace_info__
from alpha.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from alpha.array_api.manipulation import *  # noqa: F403
from alpha.array_api.searching import *  # noqa: F403
from alpha.array_api.statistics import *  # noqa: F403
from alpha.dtypes import (
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
)
from alpha.exchange_methods import VERSIONS

bool = bool_
e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

__array_api_version__ = VERSIONS[-1]

__all__ = [  # noqa: PLE0604 (the functions' names are strings too)
    "__array_api_version__",
    "__array_namespace_info__",
    "bool",
    "complex64",
    "complex128",
    "e",
    "fft",
    "float32",
    "float64",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "linalg",
    "matmul",
    "matrix_transpose",
    "nan",
    "newaxis",
    "pi",
    "tensordot",
    "uint8",
    "uint16",
    "uint32",
    "vecdot",
    *creation.__all__,
    *data_types.__all__,
    *elementwise.__all__,
    *manipulation.__all__,
    *searching.__all__,
    *statistics.__all__,
]
