"""ALGORITHMS: the one list of what can compute products of matrices."""

from __future__ import annotations

from alpha.cpu.gemm.algorithm import Algorithm
from alpha.cpu.gemm.blas import Blas
from alpha.cpu.gemm.pixels import Pixels
from alpha.cpu.gemm.tiles import Tiles
from alpha.cpu.gemm.vectors import Vectors

ALGORITHMS: list[Algorithm] = [Vectors(), Blas(), Tiles(), Pixels()]
"""In order of preference, which decides where costs are equal."""
