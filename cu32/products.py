"""A batch of matrix products as the kernels take it: operands as they lie, merged batch axes, tiles, parts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpha.arguments import Shape
from alpha.cu32 import costs, tf32
from alpha.cu32.costs import Chip, Covered, Job, Kernel, Lengths, Tile, TilePlan, float_kernel
from alpha.cu32.structs import KernelStruct
from alpha.errors import ShapeError
from alpha.tensor import Tensor

LONGEST = 32768
"""Most products in one running sum: its float32 roundings then stay below 5e-6 of the largest result."""

STEP = 32
"""A part's depth is a multiple of this: whole panels, and 16-byte addresses."""

BATCH_AXES = 3
"""Batch axes that kernels/products.cuh has room for."""

Axes = tuple[tuple[int, int, int], ...]
"""Batch axes: length, stride of the left operand, stride of the right one; 0 where one broadcasts."""

PENALTY = {"VECTOR": 1.0, "SCALAR": 1.15}
"""What moving one element at a time costs."""

PRODUCT = KernelStruct("products.cuh", "Product")


@dataclass(frozen=True)
class Operand:
    """A batch of matrices (edge, depth), the depth being what a product sums over.

    Attributes:
        across: neighbours in depth are neighbours in memory and edges lie ``leading`` elements apart; else the other
            way round.
        batch_strides: one per axis of the product's batch, 0 where this operand broadcasts.
    """

    tensor: Tensor
    across: bool
    leading: int
    batch_strides: Shape

    @property
    def edges(self) -> int:
        """Rows of a left operand, columns of a right one."""
        return self.tensor.shape[-2]

    @property
    def depth(self) -> int:
        """Length of what the product sums over."""
        return self.tensor.shape[-1]

    @property
    def layout(self) -> str:
        """The kernels' name."""
        return "ACROSS" if self.across else "ALONG"

    @property
    def aligned(self) -> bool:
        """Whether four neighbours can be moved at once everywhere: 16-byte addresses, no odd end."""
        run = self.depth if self.across else self.edges
        return self.tensor.address % 16 == 0 and all(n % 4 == 0 for n in (run, self.leading, *self.batch_strides))


def broadcast_strides(x: Tensor, batch: Shape) -> Shape:
    """The strides of (..., edge, depth) along the axes of a batch that its own broadcast to."""
    batch_strides = [0 if n == 1 else s for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True)]
    return (*(0 for _ in range(len(batch) - len(batch_strides))), *batch_strides)


def merged_axes(batch: Shape, left: Shape, right: Shape) -> Axes:
    """Batch axes without those of length 1, neighbours made one where both operands' strides allow it."""
    axes: list[tuple[int, int, int]] = []
    for n, a, b in zip(batch, left, right, strict=True):
        if n == 1:
            continue
        if axes and axes[-1][1] == a * n and axes[-1][2] == b * n:
            axes[-1] = (axes[-1][0] * n, a, b)
        else:
            axes.append((n, a, b))
    return tuple(axes)


def batches(axes: Axes) -> int:
    """Number of products."""
    return math.prod(n for n, _, _ in axes)


@dataclass(frozen=True)
class Split:
    """How a product is shared out: the tile's edge, the number of parts of the depth, and the depth of each."""

    tile: int
    parts: int
    part: int

    def blocks(self, rows: int, columns: int) -> int:
        """Blocks per batch."""
        return -(-rows // self.tile) * -(-columns // self.tile) * self.parts


LARGE, SMALL = Tile(128, 128, 8, 8, 8), Tile(64, 64, 4, 4)
"""Tiles of gemm.cu: float64 has the small one."""

RESIDENT = {LARGE: 2, SMALL: 3}
"""Blocks whose registers one multiprocessor holds."""


@dataclass(frozen=True)
class Product(Job):
    """A batch of products (rows, depth) x (depth, columns) that a plan is made for.

    Attributes:
        count: how many.
        item: bytes of an element.
        vector: whether four neighbours may be moved at once.
        layouts: of the two operands.
        high: whether factors may be rounded to TF32, on a device that can.
        split: whether a product may be made of three in TF32, on a device that can.
    """

    rows: int
    columns: int
    depth: int
    count: int
    item: int
    vector: bool
    layouts: tuple[str, str]
    high: bool = False
    split: bool = False
    operator = "matmul"

    @staticmethod
    def dense(x_shape: Sequence[int], y_shape: Sequence[int], high: bool = False, split: bool = False) -> Product:
        """That of row-major float32 operands (..., rows, depth) and (..., depth, columns); ShapeError else."""
        if len(x_shape) < 2 or len(y_shape) < 2 or x_shape[-1] != y_shape[-2] or min(*x_shape, *y_shape) < 1:
            raise ShapeError(
                f"[explain] expected shapes (..., rows, depth) and (..., depth, columns), got {tuple(x_shape)} and "
                f"{tuple(y_shape)}"
            )
        count = math.prod(np.broadcast_shapes(tuple(x_shape[:-2]), tuple(y_shape[:-2])))
        vector = x_shape[-1] % 4 == 0 and y_shape[-1] % 4 == 0
        layouts = ("ACROSS", "ALONG")
        return Product(x_shape[-2], y_shape[-1], x_shape[-1], count, 4, vector, layouts, high and vector, split)

    def __str__(self) -> str:
        return f"{self.count} x ({self.rows}, {self.depth}) by ({self.depth}, {self.columns})"

    @property
    def vectors(self) -> bool:
        """Whether a matrix meets a vector or two vectors meet, which the kernels of gemv.cu do without a plan."""
        return 1 in (self.rows, self.columns, self.depth)

    @property
    def products(self) -> int:
        return self.count * self.rows * self.columns * self.depth

    @property
    def operands(self) -> int:
        return self.count * (self.rows + self.columns) * self.depth

    @property
    def results(self) -> int:
        return self.count * self.rows * self.columns

    @property
    def fewest(self) -> int:
        return -(-self.depth // LONGEST)

    def parts(self, number: int) -> int:
        return _split(1, number, self.depth).parts


class Algorithm(ABC):
    """A way to compute products by tiles of the result.

    Attributes:
        name: as ``planner.use`` takes it.
        file: the kernel file, which checks itself before it is first used.
        always: whether it is taken wherever it serves.
    """

    name: str
    file: str
    always = False

    def serves(self, product: Product) -> bool:
        """Whether it can compute a product."""
        return True

    @abstractmethod
    def kernels(self, product: Product, chip: Chip) -> Sequence[Kernel]:
        """The kernels that serve a product on a device."""

    def plans(self, product: Product, chip: Chip, parts: int | None = None) -> list[TilePlan]:
        """The ways in which it can compute a product that it serves, the cheapest first."""
        covered = [Covered(kernel, _lengths(product, kernel)) for kernel in self.kernels(product, chip)]
        return costs.plans(product, chip, self.name, covered, parts)


class TensorCores(Algorithm):
    """In TF32 on the tensor cores: gemm_tf32.cu."""

    name, file = "tensor_cores", "gemm_tf32"

    def serves(self, product: Product) -> bool:
        return product.high and product.vector

    def kernels(self, product: Product, chip: Chip) -> Sequence[Kernel]:
        return tf32.products(chip)


class Threefold(Algorithm):
    """In float32 on the tensor cores, of three products in TF32 each: gemm_threefold.cu."""

    name, file = "threefold", "gemm_threefold"

    def serves(self, product: Product) -> bool:
        return product.split and product.vector and product.item == 4 and product.depth >= tf32.FEWEST_TERMS

    def kernels(self, product: Product, chip: Chip) -> Sequence[Kernel]:
        return tf32.products(chip, tf32.THREEFOLD)


class Tiles(Algorithm):
    """Every product, in float32 and float64: gemm.cu."""

    name, file = "tiles", "gemm"

    def kernels(self, product: Product, chip: Chip) -> Sequence[Kernel]:
        if product.item == 8:
            return [float_kernel(chip, SMALL, "SCALAR", 2.0, resident=2)]
        load = "VECTOR" if product.vector else "SCALAR"
        return [float_kernel(chip, tile, load, PENALTY[load], resident) for tile, resident in RESIDENT.items()]


ALGORITHMS: tuple[Algorithm, ...] = (TensorCores(), Threefold(), Tiles())
"""In order of preference."""


def named(name: str) -> Algorithm:
    """The algorithm of a name."""
    return next(algorithm for algorithm in ALGORITHMS if algorithm.name == name)


def _lengths(product: Product, kernel: Kernel) -> Lengths:
    """The blocks of one part."""
    tiles = -(-product.rows // kernel.tile.rows) * -(-product.columns // kernel.tile.columns)
    return ((tiles * product.count, -(-product.depth // kernel.depth)),)


def split(plan: TilePlan) -> Split:
    """How a product's plan shares it out."""
    return _split(plan.tile.rows, plan.parts, plan.problem.depth)


def vector_split(tasks: int, enough: int, depth: int, least: int) -> Split:
    """Parts of a matrix by a vector: until there are enough tasks, none shorter than ``least``."""
    parts = max(1, min(-(-enough // tasks), depth // least), -(-depth // LONGEST))
    return _split(1, parts, depth)


def _split(tile: int, parts: int, depth: int) -> Split:
    """At most so many parts, of whole steps of every kernel's panels."""
    part = -(-depth // (parts * STEP)) * STEP
    return Split(tile, -(-depth // part), part)


def pack(a: Operand, b: Operand, axes: Axes, shares: Split) -> bytes:
    """The sizes and strides of a product."""
    padded = ((1, 0, 0),) * (BATCH_AXES - len(axes)) + axes
    sizes, left, right = zip(*padded, strict=True)
    return PRODUCT.pack(
        rows=a.edges,
        columns=b.edges,
        depth=a.depth,
        a_leading=a.leading,
        b_leading=b.leading,
        batches=batches(axes),
        parts=shares.parts,
        part=shares.part,
        size=sizes,
        a_stride=left,
        b_stride=right,
    )


def transposed(x: Tensor) -> Tensor:
    """A view with the last two axes exchanged."""
    shape: Sequence[int] = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return x.strided(x.offset, tuple(shape), (*x.strides[:-2], x.strides[-1], x.strides[-2]))
