"""Engine: the contract between a differentiable function and the hardware.

Functions (``alpha/functions``) call these methods and nothing else, so a new engine implements this class and gets the
whole framework. Twelve operations are abstract, the core that an engine must have: ``synchronize``, ``allocate``,
``from_numpy``, ``to_numpy``, ``copy``, ``elementwise``, ``reduce``, ``arg_reduce``, ``sort``, ``matmul``, ``gather``
and ``scatter``. The others are written through them (``alpha/composed``), and an engine overrides what it does faster.
``alpha/numpy_engine.py`` is the shortest engine, ``alpha.engine_suite`` what every engine must pass.

An engine's methods know nothing of gradients: they take tensors and return new ones. They may trust that dtypes agree
and that axes are in range (the functions check users' input); an engine checks what would make it follow a bad
pointer. Tensors may be empty, with axes of length 0: sums over nothing are 0, products 1. Convolutions and batch norms
alone are never called with an empty tensor, nor cross entropy without classes: their functions answer by themselves
(``alpha/functions/nothing.py``). Unless said otherwise an argument may have any strides, and a result is dense.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from alpha import precision
from alpha.arguments import Shape
from alpha.composed import (
    arrays,
    attention,
    convolution,
    group_norm,
    linear,
    losses,
    normalisation,
    optimizers,
    ordering,
    padding,
    pointwise,
    pooling,
    reductions,
    row_norms,
    samples,
    softmax,
)
from alpha.dtypes import float32
from alpha.errors import ArgumentError, EngineError, described
from alpha.geometry import Geometry
from alpha.mempool import MemoryPool
from alpha.records import (
    FILTER_ORDER,
    IMAGE_ORDER,
    AttentionSettings,
    AttentionState,
    BatchNormState,
    Epilogue,
    Index,
    Normalised,
    NormGradients,
    Operand,
    PairGradients,
    PointwiseStep,
    RangeCheck,
    RowCall,
    RowPass,
    RunningStatistics,
    Scalar,
    ToNormalise,
    WeightedPairs,
)
from alpha.tensor import Tensor, has_no_gaps

if TYPE_CHECKING:
    from alpha.expressions.program import Program
    from alpha.graphs import Capture, Recorder
    from alpha.launches import Launches
    from alpha.random import Draw
    from alpha.tensor import Storage
    from alpha.update_rules import UpdateRule
    from alpha.updates import Plan, Refresh, Row

__all__ = [
    "FILTER_ORDER",
    "IMAGE_ORDER",
    "AttentionSettings",
    "AttentionState",
    "BatchNormState",
    "Engine",
    "Epilogue",
    "Index",
    "Operand",
    "PointwiseStep",
    "RangeCheck",
    "RunningStatistics",
    "Scalar",
    "WeightedPairs",
]


class Engine(ABC):
    """A device that holds tensors and computes with them.

    Attributes:
        name: ``"cpu"``, ``"cu32:0"``.
        memory: the pool every tensor of the engine lives in.
        synchronous: whether every operation is done when its call returns; see ``sync``.
        checking: whether indices are checked; see ``check``.
        threads: the host's threads that compute.
        finishes_images: whether loaders leave what they can of a batch to ``images_to_float``.
        has_losses_at_once: whether it has ``cross_entropy_loss``.
        most_chained_norms: the terms that ``batch_norm_chain_again`` makes in one pass.
        capture: what notes down a step that ``alpha.graph`` is capturing on this engine, else None.
    """

    name: str
    memory: MemoryPool
    synchronous: bool = False
    checking: bool = True
    threads: int = 1
    has_losses_at_once: bool = False
    finishes_images: bool = False
    most_chained_norms: int = 1
    capture: Capture | None = None

    # -- switches ------------------------------------------------------------------------------------------------

    def sync(self, on: bool = True) -> Self:
        """Whether every call waits for its work, so that a fault shows where it is made; off at first. Returns self.

        For debugging: the device idles between calls. The CPU engine's work is always done when a call returns.
        """
        self.synchronous = _switch("sync", on)
        return self

    def check(self, on: bool = True) -> Self:
        """Whether indices and labels are checked to be in range; on at first. Returns self.

        Off, a wrong index is the caller's fault: it means some other element, but is never followed out of the tensor.
        """
        self.checking = _switch("check", on)
        return self

    @property
    def precision(self) -> str:
        """How float32 convolutions and matrix products are computed: see ``alpha.set_float32_precision``."""
        return precision.get_float32_precision()

    @property
    def numerics(self) -> str:
        """What of this machine decides the bits of results: two engines that say the same compute the same."""
        return self.name.partition(":")[0]

    def recorder(self) -> Recorder | None:
        """What captures steps for ``alpha.graph``; None where a step is simply called."""
        return None

    def configure(self, *, memory: str | int | None = None, threads: int | None = None) -> None:
        """Changes the pool's cap or the number of threads; ArgumentError for what the engine does not have."""
        if threads is not None:
            raise ArgumentError(
                f"[engine] expected no threads= for {self.name}, got {described(threads)}: only the CPU's has it"
            )
        if memory is not None:
            self.memory.cap = memory  # the setter parses "8GB"

    def check_owner(self, function: str, *tensors: Tensor) -> None:
        """EngineError unless every tensor lives on this engine."""
        for tensor in tensors:
            if tensor.engine is not self:
                raise EngineError(
                    f"[{function}] expected tensors of one engine, got {self.name} and {tensor.engine.name}: move one "
                    "with .to(engine)"
                )

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until all submitted work is done."""

    # -- memory --------------------------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, nbytes: int) -> Storage:
        """Uninitialised memory from the pool, aligned to 64 bytes, with SLACK readable bytes behind it."""

    def lasting(self) -> AbstractContextManager[None]:
        """``with engine.lasting():`` what this thread makes in the block is kept long, as an optimizer's state is.

        A pool may then put it where it does not divide memory that is needed whole again.
        """
        return nullcontext()

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any] = float32, order: Sequence[int] | None = None) -> Tensor:
        """A dense uninitialised tensor; ``order`` lists the axes from outermost to innermost in memory."""
        return Tensor.dense(self, tuple(shape), dtype, order)

    def empty_like(self, tensor: Tensor, dtype: np.dtype[Any] | None = None) -> Tensor:
        """A dense uninitialised tensor of the same shape and memory order."""
        return self.empty(tensor.shape, dtype or tensor.dtype, tensor.memory_order())

    def dense(self, x: Tensor, order: Sequence[int] | None = None) -> Tensor:
        """x, or a copy, without gaps: in the given order of axes, or in whatever order it lies."""
        if order is None:
            return x if has_no_gaps(x.shape, x.strides) else self.copied(x, x.memory_order())
        return x if x.is_contiguous(order) else self.copied(x, order)

    def copied(self, x: Tensor, order: Sequence[int] | None = None) -> Tensor:
        """A dense copy in memory of its own: in the given order of axes, or in the order in which it lies."""
        return arrays.copied(self, x, x.dtype, order)

    @abstractmethod
    def from_numpy(self, array: np.ndarray[Any, Any]) -> Tensor:
        """A copy of the array on this engine, in the array's memory order."""

    def from_pieces(
        self, shape: Sequence[int], dtype: np.dtype[Any], pieces: Iterable[tuple[int, np.ndarray[Any, Any]]]
    ) -> Tensor:
        """A dense tensor made of pieces: pairs of a first element, in row-major order, and the numbers from it on.

        Each piece is made when the one before is through: the host holds no more than one besides.
        """
        total, out = math.prod(shape), None
        for start, numbers in pieces:
            if len(numbers) == total:
                return self.from_numpy(numbers.astype(dtype, copy=False).reshape(shape))
            out = self.empty(shape, dtype) if out is None else out
            self.copy(self.from_numpy(numbers), out.strided(out.offset + start, numbers.shape, (1,)))
        return self.empty(shape, dtype) if out is None else out

    @abstractmethod
    def to_numpy(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The tensor as an array: a view of the same memory where the host can reach it, else a copy."""

    def constant(self, key: Hashable, make: Callable[[], np.ndarray[Any, Any]]) -> Tensor:
        """The array that ``make()`` gives, to be read only: an engine may keep one tensor a key for good."""
        return self.from_numpy(make())

    def check_range(self, index: Tensor, low: int, high: int, check: RangeCheck, ignore: int | None = None) -> Tensor:
        """An int64 index whose elements may be in low..high-1 or equal to ``ignore``, as one safe to follow.

        In the result negative elements (where low < 0) count from the start (+ high) and ignored ones are 0. It has
        memory of its own, so that what was checked stays what is followed, in backward too, whoever writes to the
        index meanwhile. An element out of range raises ``check``'s error: at once, or where that would make the host
        wait, at the next point where it waits anyway; until then, and with ``check(False)`` for good, the result holds
        0 in its place.
        """
        return arrays.check_range(self, index, low, high, check, ignore)

    def check_none(self, count: Tensor, check: RangeCheck) -> None:
        """``check``'s error unless a float tensor of one element is 0; at once, or when ``check_range`` raises."""
        arrays.check_none(self, count, check)

    def one_hot(self, labels: Tensor, classes: int, dtype: np.dtype[Any], check: RangeCheck) -> Tensor:
        """A row (classes,) for each of some int64 labels (N,): 1 at the label, 0 elsewhere; checked as in
        ``check_range``."""
        return arrays.one_hot(self, labels, classes, dtype, check)

    def check_labels(self, labels: Tensor, classes: int, check: RangeCheck, ignore: int) -> tuple[Tensor, bool]:
        """``check_range`` of labels in 0..classes-1, and whether any may have been ignored."""
        return self.check_range(labels, 0, classes, check, ignore), True

    @abstractmethod
    def copy(self, source: Tensor, out: Tensor) -> None:
        """``out[...] = source`` with broadcasting and conversion of dtype."""

    def concat(self, tensors: Sequence[Tensor], axis: int, order: Sequence[int] | None = None) -> Tensor:
        """Tensors of one dtype one after another along an axis; their other lengths are equal.

        ``order``: the result's memory order; that of the largest tensor unless given.
        """
        return arrays.concat(self, tensors, axis, order)

    def stack(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors of one shape and dtype side by side along a new axis; in the memory order of the largest."""
        return arrays.stack(self, tensors, axis)

    def flip(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        """A copy whose elements are in reverse order along axes."""
        return arrays.flip(self, x, axes)

    def pad(self, x: Tensor, before: Shape, after: Shape, mode: str, value: Scalar) -> Tensor:
        """x with so many elements before and behind each axis.

        ``mode``: ``"constant"``: a number that x's dtype holds; ``"reflect"``, ``"replicate"`` and ``"circular"``: x's
        own elements, of which there are enough (``alpha.pad``).
        """
        return padding.pad(self, x, before, after, mode, value)

    def pad_grad(self, dy: Tensor, before: Shape, after: Shape, mode: str) -> Tensor:
        """The gradient of x, whose own elements were put around it; of floats."""
        return padding.pad_grad(self, dy, before, after, mode)

    def storing(self, source: np.ndarray[Any, Any], out: Tensor) -> tuple[Any, ...] | None:
        """The action (``alpha.changes``) that copies an array of the same shape and dtype into a tensor.

        None where that takes more than a call of one C function.
        """
        return None

    def fill(self, out: Tensor, value: Scalar) -> None:
        """``out[...] = value``."""
        arrays.fill(self, out, value)

    def full(
        self, shape: Sequence[int], value: Scalar, dtype: np.dtype[Any], order: Sequence[int] | None = None
    ) -> Tensor:
        """A dense tensor with one number in each element; ``order``: the axes from outermost to innermost."""
        return arrays.filled(self, shape, value, dtype, order)

    def kept_ones(self, x: Tensor) -> Tensor | None:
        """A tensor of ones as x that is kept, and only ever read; None where to make one costs next to nothing."""
        return None

    def full_like(self, x: Tensor, value: Scalar, dtype: np.dtype[Any]) -> Tensor:
        """A dense tensor of x's shape and memory order with one number in each element."""
        return self.full(x.shape, value, dtype, x.memory_order())

    def eye(self, rows: int, columns: int, dtype: np.dtype[Any]) -> Tensor:
        """A matrix in row-major order with ones on its diagonal and zeros elsewhere."""
        out = self.full((rows, columns), 0, dtype)
        if rows and columns:
            self.fill(out.strided(0, (min(rows, columns),), (columns + 1,)), 1)
        return out

    def progression(self, first: int | float, step: int | float, count: int, dtype: np.dtype[Any]) -> Tensor:
        """first + i * step for i = 0, 1, ..., count - 1, converted to a dtype.

        Two ints are counted in int64. Two floats are counted as NumPy does: the second number is their sum in float64,
        and the others follow by its difference from the first.
        """
        return arrays.progression(self, first, step, count, dtype)

    # -- element-wise, reductions, indexing, products ------------------------------------------------------------

    @abstractmethod
    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        """``op`` over broadcast operands, tensors of one dtype or Python numbers, at least one a tensor.

        One operand: neg abs exp log log1p sqrt sin cos tanh sigmoid erf sign floor ceil logical_not isfinite
        reciprocal square. Two: add sub mul div floor_divide remainder pow maximum minimum eq ne lt le gt ge
        logical_and logical_or logical_xor. Three: where (first operand bool). Integers have fmod bitwise_and bitwise_or
        bitwise_xor bitwise_not left_shift right_shift too, as NumPy's; bools have those of bits that do not shift.
        Comparisons, logical_* and isfinite return bool; the others the tensors' dtype, which a number takes,
        integers wrapping around; comparisons compare its value. The result keeps the memory order of its
        largest operand. ``out`` may be one of the operands.
        """

    def pointwise(
        self,
        function: str,
        program: Program,
        tensors: Sequence[Tensor],
        numbers: Sequence[float],
        out: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The results of a program over broadcast tensors and numbers: see ``alpha.expressions.program``.

        They are computed in the dtype in which the float tensors meet, and have it, or bool; their shape is the one
        that the tensors broadcast to, their memory order that of the largest tensor. Tensors of integers, with numbers
        that are ints, are computed with where ``elementwise`` has all operations of them. ``function``: who asks, for
        messages. ``out``: where the only result goes, of that shape and dtype; it may be one of the tensors or a part.
        """
        return pointwise.pointwise(self, function, program, tensors, numbers, out)

    def row_pass(self, wanted: RowPass) -> RowCall:
        """What computes a point-wise function over rows of matrices, some of them in each call.

        What a call needs to know of the matrices may be found once for all calls.
        """
        return pointwise.row_pass(self, wanted)

    def pointwise_sum(
        self, function: str, program: Program, tensors: Sequence[Tensor], numbers: Sequence[float], mean: bool
    ) -> Tensor:
        """The sum of all elements of a program's one result, a float, or their ``mean``: pairwise or better."""
        return pointwise.pointwise_sum(self, function, program, tensors, numbers, mean)

    @abstractmethod
    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        """``op`` of sum prod max min any all over sorted non-negative axes; float sums are pairwise or better.

        Sums of bool, uint8 and int32 come as int64; any and all as bool.
        """

    def mean(self, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        """The mean of floats over sorted non-negative axes, as accurate as their sum; NaN of no elements."""
        return reductions.mean(self, x, axes, keepdims)

    def euclidean_norm(self, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        """sqrt(sum(x ** 2)) of floats over sorted non-negative axes, as accurate as a sum."""
        return reductions.euclidean_norm(self, x, axes, keepdims)

    def variance(self, x: Tensor, axes: tuple[int, ...], correction: float, keepdims: bool) -> tuple[Tensor, Tensor]:
        """sum((x - mean) ** 2) / (n - correction) of floats over sorted non-negative axes, and the mean, which keeps
        them at length 1; NaN where n is no more than the correction. Equal numbers have a variance of exactly 0.
        """
        return reductions.variance(self, x, axes, correction, keepdims)

    def prod_grad(self, grad: Tensor, x: Tensor, y: Tensor, axes: tuple[int, ...], everything: bool) -> Tensor:
        """``grad`` times the product over axes of the factors of floats beside each; exact where factors are 0.

        Args:
            grad, y: of the result, and the result, with the axes at length 1.
            everything: whether two zeros in all of x make the gradient 0 everywhere.
        """
        return reductions.prod_grad(self, grad, x, y, axes, everything)

    @abstractmethod
    def arg_reduce(self, op: str, x: Tensor, axis: int) -> Tensor:
        """``op`` of argmax argmin along one axis, first on ties, as int64 without that axis."""

    @abstractmethod
    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Values in ascending stable order along an axis, and their int64 indices."""

    def topk(self, x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
        """The first ``k`` elements along an axis in descending (ascending) order, and their int64 indices."""
        return ordering.topk(self, x, k, axis, largest)

    def rank(self, x: Tensor, axis: int, place: int) -> Tensor:
        """The int64 index, with the axis at length 1, of the element at a place in ascending order along an axis."""
        return ordering.rank(self, x, axis, place)

    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        """Running sums along an axis."""
        return arrays.cumsum(self, x, axis)

    def cumprod(self, x: Tensor, axis: int) -> Tensor:
        """Running products along an axis, of the dtypes that products of elements have."""
        return arrays.cumprod(self, x, axis)

    def running_extremes(self, x: Tensor, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
        """The largest (smallest) elements so far along an axis, or NaN, and the last int64 indices that have them."""
        return arrays.running_extremes(self, x, axis, largest)

    @abstractmethod
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Batched matrix product of (..., M, K) and (..., K, N), batch axes broadcast; floats only."""

    def linear(
        self, x: Tensor, w: Tensor, bias: Tensor | None, step: PointwiseStep | None = None, keeps: bool = False
    ) -> tuple[Tensor, Tensor]:
        """``step(x w^T + bias)`` of (rows, in), (out, in) and (out,), none of them empty, and what the step was given.

        The latter may have been overwritten by the result unless it is to be kept; without a step both are the same.
        """
        return linear.linear(self, x, w, bias, step, keeps)

    def linear_input_grad(self, dy: Tensor, w: Tensor) -> Tensor:
        """The gradient of ``linear``'s x: ``dy w``."""
        return linear.linear_input_grad(self, dy, w)

    def linear_weight_grad(self, x: Tensor, dy: Tensor, with_bias: bool) -> tuple[Tensor, Tensor | None]:
        """The gradients of ``linear``'s w, ``dy^T x``, and of its bias where asked for: as ``channel_sum``."""
        return linear.linear_weight_grad(self, x, dy, with_bias)

    def gemv(self, a: Tensor, x: Tensor, trans: bool = False, plus: Tensor | None = None) -> Tensor:
        """The matrix ``a`` (M, N), or transposed, times a vector, and a vector added; floats only."""
        return arrays.gemv(self, a, x, trans, plus)

    def ger(
        self, x: Tensor, y: Tensor, alpha: float = 1.0, a: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """``a + alpha * outer(x, y)``, without ``a`` the product alone; ``out`` may be ``a`` itself. Floats only."""
        return arrays.ger(self, x, y, alpha, a, out)

    @abstractmethod
    def gather(self, x: Tensor, index: Index) -> Tensor:
        """``x[index]`` with NumPy's advanced indexing, as a copy; indices are in range."""

    @abstractmethod
    def scatter(self, out: Tensor, index: Index, values: Operand, accumulate: bool) -> None:
        """``out[index] = values``, or ``+=`` with repeated indices adding up."""

    def index_select(
        self, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None, from_end: bool = True
    ) -> Tensor:
        """The entries along an axis that an int64 index of any shape names.

        It is in range, unless there is a ``check``: then it is checked as by ``check_range``, and elements below 0
        count from the axis' end with ``from_end`` and are out of range without.
        """
        return arrays.index_select(self, x, index, axis, check, from_end)

    def gather_along(self, x: Tensor, index: Tensor, axis: int, check: RangeCheck | None = None) -> Tensor:
        """out[i, j, k] = x[i, index[i, j, k], k] for axis 1 of three, and likewise for others.

        The int64 index has x's number of axes; it may be shorter than x along the other ones. It is in range, unless
        there is a ``check``: then it is checked as by ``check_range``, and elements below 0 count from the axis' end.
        """
        return arrays.gather_along(self, x, index, axis, check)

    def gather_along_kept(self, x: Tensor, index: Tensor, axis: int, check: RangeCheck) -> tuple[Tensor, Tensor]:
        """``gather_along``, and the index as its gradient follows it: checked, in memory of its own.

        Its dtype is the engine's to choose: ``scatter_along`` and ``gather_along_grad`` take it.
        """
        return arrays.gather_along_kept(self, x, index, axis, check)

    def scatter_along(self, out: Tensor, index: Tensor, values: Tensor, axis: int) -> None:
        """out[i, index[i, j, k], k] += values[i, j, k], as ``gather_along`` reads; repeated indices add up."""
        arrays.scatter_along(self, out, index, values, axis)

    def put_along(self, out: Tensor, index: Tensor, values: Tensor, axis: int, op: str = "put") -> None:
        """out[i, index[i, j, k], k] = values[i, j, k] for "put", as ``scatter_along`` adds; repeated places keep one.

        Other operations combine all values with what is there: "add", "multiply", "maximum", "minimum".
        """
        arrays.put_along(self, out, index, values, axis, op)

    def gather_along_grad(
        self, dy: Tensor, index: Tensor, axis: int, shape: Sequence[int], order: Sequence[int]
    ) -> Tensor:
        """The gradient of a tensor of a shape that ``gather_along`` read, in a memory order: ``dy`` added to zeros."""
        return arrays.gather_along_grad(self, dy, index, axis, shape, order)

    # -- convolution: C-K-S --------------------------------------------------------------------------------------

    def conv2d(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        residual: Tensor | None = None,
        slope: float | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        """ConvV2: act(conv(x, w) + bias + residual), act as in ``Epilogue``.

        x: (N, IH, IW, IC), w: (OC, FH, FW, IC/groups), bias: (OC,), residual and result: (N, OH, OW, OC). The result is
        added into ``accumulate`` where it is given.
        """
        return convolution.conv2d(self, x, w, bias, geometry, groups, residual, slope, accumulate)

    def conv2d_input_grad(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        bias: Tensor | None = None,
        accumulate: Tensor | None = None,
    ) -> Tensor:
        """KS-deconv-V2. dy: (N, OH, OW, OC), w: (OC, FH, FW, IC/groups); returns dx (N, IH, IW, IC).

        The result is added into ``accumulate`` where it is given, and bias (IC,) to each position.
        """
        return convolution.conv2d_input_grad(self, dy, w, geometry, groups, bias, accumulate)

    def conv2d_weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """Sk-dilated-V2. Returns dw (OC, FH, FW, IC/groups)."""
        return convolution.conv2d_weight_grad(self, x, dy, geometry, groups)

    # -- normalisation, activation, pooling ----------------------------------------------------------------------

    def channel_sum(self, x: Tensor) -> Tensor:
        """The sum over all axes but the last, accumulated in float64: a bias's gradient."""
        return normalisation.channel_sum(self, x)

    def batch_norm(
        self, x: Tensor, running: RunningStatistics, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        """Training BatchNorm over all axes but the last: act(weight * (x - mean) / sqrt(var + eps) + bias + residual).

        Mean and biased variance are x's own; the running statistics, where there are any, are updated in place.
        """
        return normalisation.batch_norm(self, x, running, eps, epilogue, residual)

    def batch_norm_inference(
        self, x: Tensor, mean: Tensor, var: Tensor, eps: float, epilogue: Epilogue, residual: Tensor | None
    ) -> tuple[Tensor, BatchNormState]:
        """The same with the given mean and variance."""
        return normalisation.batch_norm_inference(self, x, mean, var, eps, epilogue, residual)

    def remakes_batch_norm(self, x: Tensor) -> bool:
        """Whether the results of BatchNorms of such tensors are not to be kept, but made by ``batch_norm_again``."""
        return False

    def batch_norm_again(self, x: Tensor, epilogue: Epilogue, state: BatchNormState, residual: Tensor | None) -> Tensor:
        """The result of ``batch_norm`` once more, of its state and with its bits."""
        raise EngineError(f"[batch_norm] expected an engine that makes results again, got {self.name}: keep them")

    def batch_norm_chain_again(self, terms: Sequence[Normalised], residual: Tensor | None) -> Tensor:
        """``batch_norm_again`` of the first term, whose residual is that of the next one, and so on.

        ``residual`` is the last one's. The results between are not kept.
        """
        below = residual
        for x, epilogue, state in reversed(terms):
            below = self.batch_norm_again(x, epilogue, state, below)
        assert below is not None
        return below

    def batch_norm_grad(
        self, dy: Tensor, x: Tensor, y: Tensor | None, epilogue: Epilogue, state: BatchNormState, need_residual: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Gradients (dx, dweight, dbias, dresidual) of batch_norm.

        ``y`` is the forward's result, given where there was a residual and an activation: its sign is the
        activation's mask. Without a residual the mask is computed again from x.
        """
        return normalisation.batch_norm_grad(self, dy, x, y, epilogue, state, need_residual)

    def batch_norm_remade_grad(
        self,
        dy: Tensor,
        x: Tensor,
        residual: Tensor | None,
        epilogue: Epilogue,
        state: BatchNormState,
        need_residual: bool,
        overwrites: tuple[bool, bool] = (False, False),
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """``batch_norm_grad`` of a result that was not kept: the mask is computed again from x and the residual.

        ``overwrites``: whether dy and x may be written over; dresidual or dx may then lie there.
        """
        raise EngineError(f"[batch_norm] expected an engine that makes results again, got {self.name}: keep them")

    def batch_norm_summed_grad(
        self, g: Tensor, x: Tensor, epilogue: Epilogue, state: BatchNormState, found: NormGradients, over_x: bool
    ) -> Tensor:
        """dx of ``conv2d_input_grad_past``'s gradient and sums; it may lie over x, if ``over_x``."""
        raise EngineError(f"[batch_norm] expected an engine that sums in convolutions, got {self.name}: sum apart")

    def measures_convolutions(self, x: Tensor) -> bool:
        """Whether BatchNorms behind convolutions of such images spare a pass by ``conv2d_measured``."""
        return False

    def conv2d_measured(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        groups: int,
        running: RunningStatistics,
        eps: float,
    ) -> tuple[Tensor, BatchNormState]:
        """``conv2d``, and the state that ``batch_norm`` of its result has; the running statistics are updated."""
        raise EngineError(f"[conv2d] expected an engine that measures convolutions, got {self.name}: use batch_norm")

    def normalises_in_convolutions(self, x: Tensor) -> bool:
        """Whether a convolution of what a BatchNorm makes of x spares passes by ``conv2d_normalised``."""
        return False

    def conv2d_normalised(
        self,
        before: Normalised,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        running: RunningStatistics,
        eps: float,
    ) -> tuple[Tensor, BatchNormState]:
        """``conv2d_measured`` of a BatchNorm's result, which need not be in memory."""
        raise EngineError(f"[conv2d] expected an engine that normalises in convolutions, got {self.name}: do it before")

    def conv2d_weight_grad_normalised(self, before: Normalised, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """``conv2d_weight_grad`` of a BatchNorm's result, which need not be in memory."""
        raise EngineError(f"[conv2d] expected an engine that normalises in convolutions, got {self.name}: do it before")

    def conv2d_input_grad_past(
        self,
        dy: Tensor,
        w: Tensor,
        geometry: Geometry,
        groups: int,
        before: tuple[Normalised, Tensor | Normalised | None],
        accumulate: Tensor | None = None,
    ) -> tuple[Tensor, NormGradients | PairGradients | None]:
        """``conv2d_input_grad`` past the activation of the BatchNorm and residual that the images come from.

        The residual may be a BatchNorm's, too: ``PairGradients`` then. With the gradient come the sums of the
        BatchNorm's; None where it is still the gradient before the activation.
        """
        raise EngineError(f"[conv2d] expected an engine that sums in convolutions, got {self.name}: sum apart")

    def sums_batch_norms(self, x: Tensor) -> bool:
        """Whether the sum of two BatchNorms of such tensors is ``batch_norm_sum``."""
        return False

    def batch_norm_sum(
        self, first: ToNormalise, second: ToNormalise, slope: float | None
    ) -> tuple[Tensor, BatchNormState, BatchNormState]:
        """act(BatchNorm(first) + BatchNorm(second)) of two tensors of one shape, in training, and both states."""
        raise EngineError(f"[batch_norm] expected an engine that sums BatchNorms, got {self.name}: add their results")

    def batch_norm_sum_again(self, first: Normalised, second: Normalised) -> Tensor:
        """The result of ``batch_norm_sum`` once more, with its bits; the slope is the first epilogue's."""
        raise EngineError(f"[batch_norm] expected an engine that sums BatchNorms, got {self.name}: add their results")

    def batch_norm_sum_grad(
        self,
        dy: Tensor,
        first: Normalised,
        second: Normalised,
        overwrites: tuple[bool, bool, bool] = (False, False, False),
    ) -> tuple[Tensor, ...]:
        """Gradients of the first tensor, its weight and its bias, and the same of the second.

        ``overwrites``: whether dy, the first tensor and the second one may be written over.
        """
        raise EngineError(f"[batch_norm] expected an engine that sums BatchNorms, got {self.name}: add their results")

    def batch_norm_sum_summed_grad(
        self,
        g: Tensor,
        first: Normalised,
        second: Normalised,
        found: PairGradients,
        overwrites: tuple[bool, bool] = (False, False),
    ) -> tuple[Tensor, Tensor]:
        """Gradients of both tensors of ``conv2d_input_grad_past``'s gradient and sums; they may lie over them."""
        raise EngineError(f"[batch_norm] expected an engine that sums in convolutions, got {self.name}: sum apart")

    def batch_norm_inverse_grad(
        self,
        dy: Tensor,
        y: Tensor,
        residual: Tensor | None,
        epilogue: Epilogue,
        state: BatchNormState,
        need_residual: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """``batch_norm_grad`` from the forward's result alone, of a state that is invertible: no x needs to be kept.

        An engine that makes no such states (it would have to wait for the device to know) goes without.
        """
        raise EngineError(f"[batch_norm] expected an engine that recovers x from y, got {self.name}: keep x")

    def row_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: int, eps: float, centered: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(x - mean) / sqrt(var + eps) * weight + bias over so many last axes, and what its gradient takes.

        Biased variance; without ``centered`` the mean counts as 0, as in RMSNorm. weight and bias have the last axes'
        shape. x has elements.
        """
        return row_norms.row_norm(self, x, weight, bias, axes, eps, centered)

    def row_norm_grad(
        self,
        dy: Tensor,
        x: Tensor,
        weight: Tensor | None,
        statistics: tuple[Tensor, ...],
        axes: int,
        centered: bool,
        needs: Sequence[bool],
    ) -> tuple[Tensor | None, ...]:
        """The gradients (dx, dweight, dbias) of row_norm from its statistics; None where not needed."""
        return row_norms.row_norm_grad(self, dy, x, weight, statistics, axes, centered, needs)

    def group_norm(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        groups: int,
        eps: float,
        running: RunningStatistics | None,
    ) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """(x - mean) / sqrt(var + eps) * weight + bias over positions and channel groups of (N, ..., C), biased var.

        Also returns what its gradient takes. weight and bias are (C,). The running statistics, which groups of one
        channel may have, take the samples' mean. x has elements.
        """
        return group_norm.group_norm(self, x, weight, bias, groups, eps, running)

    def group_norm_grad(
        self, dy: Tensor, kept: Sequence[Any], groups: int, eps: float, needs: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        """The gradients (dx, dweight, dbias) of group_norm from what it kept."""
        return group_norm.group_norm_grad(self, dy, kept, groups, eps, needs)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, settings: AttentionSettings
    ) -> tuple[Tensor, Tensor]:
        """softmax(scale * q k' + mask) v, in q's memory order, and the logarithms of the softmax's sums.

        q (..., L, E), k (..., S, E) and v (..., S, Ev) have the same axes of the batch, the mask (bool, or floats that
        are added) as many, each of that length or of 1. A query that sees no key has the result 0 and the logarithm
        +infinity. All but E are at least 1. An engine holds no more than blocks of the scores.
        """
        return attention.attention(self, q, k, v, mask, settings)

    def attention_grad(
        self, dy: Tensor, state: AttentionState, settings: AttentionSettings, needs: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        """The gradients (dq, dk, dv, dmask) of attention; None where not needed."""
        return attention.attention_grad(self, dy, state, settings, needs)

    def dropped_scores(
        self, block: Tensor, settings: AttentionSettings, scores: Shape, first: int, is_again: bool
    ) -> Tensor:
        """Some queries' probabilities of attention, or their gradients, after its dropout.

        ``block`` (..., queries, keys) is a part of ``scores`` (..., L, S), from query ``first`` on and of the first
        keys. ``is_again``: the random words are those that the forward pass drew.
        """
        return attention.dropped_scores(self, block, settings, scores, first, is_again)

    def combine(self, x: Tensor, pairs: WeightedPairs) -> Tensor:
        """Weighted sums over an axis: y[:, p] is the sum of weight * x[:, source] over p's pairs.

        x: (count, length, values), dense; returns (count, positions, values). Nothing but a position's pairs is read.
        """
        return pooling.combine(self, x, pairs)

    def resample(self, x: Tensor, rows: WeightedPairs, columns: WeightedPairs) -> Tensor:
        """Images (N, H, W, C) whose rows are weighted sums of x's rows, and whose columns are such of x's columns.

        A pixel that is one of x's with weight 1 is that pixel, whatever it holds.
        """
        return pooling.resample(self, x, rows, columns)

    def leaky_relu(self, x: Tensor, slope: float) -> Tensor:
        """max(x, 0) + slope * min(x, 0); of -inf and a slope of 0 it is 0."""
        return normalisation.leaky_relu(self, x, slope)

    def leaky_relu_grad(self, dy: Tensor, y: Tensor, slope: float) -> Tensor:
        """dy where y > 0, else slope * dy; y may be the function's argument, or its result where slope >= 0.

        With a slope of 0 it is 0 where y <= 0, whatever dy is, and dy where y is NaN.
        """
        return normalisation.leaky_relu_grad(self, dy, y, slope)

    def max_pool2d(self, x: Tensor, geometry: Geometry, need_taps: bool = True) -> tuple[Tensor, Tensor | None]:
        """Maxima (N, OH, OW, C) over the taps inside x, and the int32 tap (fh * FW + fw) of each.

        The first on ties; NaN is the largest, and of several the last wins.

        Without ``need_taps`` an engine may give None for the taps.
        """
        return pooling.max_pool2d(self, x, geometry, need_taps)

    def max_pool2d_grad(self, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        """dx of max_pool2d from the taps it returned."""
        return pooling.max_pool2d_grad(self, dy, taps, geometry)

    def avg_pool2d(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        """Means over windows, of FH * FW elements, or of those inside x where ``count_padding`` is False."""
        return pooling.avg_pool2d(self, x, geometry, count_padding)

    def avg_pool2d_grad(self, dy: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        """dx of avg_pool2d."""
        return pooling.avg_pool2d_grad(self, dy, geometry, count_padding)

    # -- losses, random numbers, optimizers ----------------------------------------------------------------------

    def softmax(self, x: Tensor, axis: int, log: bool) -> Tensor:
        """exp(x) / sum(exp(x)) along an axis, or its logarithm, without overflow."""
        return softmax.softmax(self, x, axis, log)

    def softmax_grad(self, dy: Tensor, y: Tensor, axis: int, log: bool) -> Tensor:
        """dx of softmax from its result."""
        return softmax.softmax_grad(self, dy, y, axis, log)

    def cross_entropy(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Per-row losses (N,) and softmax probabilities (N, C) of logits (N, C) and int64 labels (N,).

        A label out of range is not followed: its row's loss is NaN.
        Label smoothing e: the target is (1 - e) * onehot + e / C.
        """
        return losses.cross_entropy(self, logits, labels, smoothing)

    def cross_entropy_losses(self, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """The losses of ``cross_entropy`` alone, for which an engine may do less."""
        return self.cross_entropy(logits, labels, smoothing)[0]

    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        """d logits = scale * (probabilities - target); scale: (N,) gradients of the rows' losses."""
        return losses.cross_entropy_grad(self, probabilities, labels, scale, smoothing)

    def cross_entropy_loss(
        self, logits: Tensor, labels: Tensor, ignore_index: int, reduction: str, smoothing: float, check: RangeCheck
    ) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """All of a loss at once: ``cross_entropy``'s losses ("none"), or their "sum" or "mean".

        Rows whose label is ``ignore_index`` count nothing. Also returns the probabilities, the labels as
        ``cross_entropy_loss_grad`` follows them, in memory of their own, and the factor of the gradient. A label out of
        range is as in ``check_range``. None, as here, leaves the loss to be put together from other operations.
        """
        return None

    def cross_entropy_loss_grad(
        self, grad: Tensor, probabilities: Tensor, followed: Tensor, factor: Tensor, smoothing: float
    ) -> Tensor:
        """The gradient (N, C) for the logits; ``grad``: () or (N,), as the loss was."""
        return losses.cross_entropy_loss_grad(self, grad, probabilities, followed, factor, smoothing)

    def nll_loss(
        self, rows: Tensor, labels: Tensor, ignore_index: int, reduction: str, check: RangeCheck
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        """-rows[i, labels[i]] of rows (N, C) and int64 labels (N,): each ("none"), or their "sum" or "mean".

        Rows whose label is ``ignore_index`` count nothing. Also returns the labels as ``nll_loss_grad`` follows them,
        in memory of their own, and the factor of the gradient. A label out of range is as in ``check_range``.
        """
        return losses.nll_loss(self, rows, labels, ignore_index, reduction, check)

    def nll_loss_grad(self, grad: Tensor, followed: Tensor, factor: Tensor | float, classes: int) -> Tensor:
        """The gradient (N, C) for the rows; ``grad``: () or (N,), as the loss was."""
        return losses.nll_loss_grad(self, grad, followed, factor, classes)

    def random(self, draw: Draw) -> Tensor:
        """The numbers of ``alpha.random.draw_uniform`` or ``draw_normal``, equal to ``draw.numpy()`` to the bit."""
        return self.from_pieces(draw.shape, draw.dtype, draw.pieces())

    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        """(y, mask): element i, counted in logical row-major order, is kept (and scaled by 1 / (1 - p)) when
        ``random.uniforms(seed, offset, ...)[i] >= p``; the mask is bool."""
        return samples.dropout(self, x, p, seed, offset)

    def images_to_float(
        self,
        images: Tensor,
        places: Tensor,
        size: tuple[int, int],
        mean: np.ndarray[Any, Any],
        divisor: np.ndarray[Any, Any],
    ) -> Tensor:
        """float32 (N, *size, C) = (pixel - mean) / divisor of uint8 images (N, H, W, C), mean and divisor a channel.

        places (N, 3) int32: first row, first column, and step to the next column (1 or -1) of a result in its image;
        pixels outside are 0.
        """
        return samples.images_to_float(self, images, places, size, mean, divisor)

    def optimizer_step(
        self, rows: Sequence[Row], rule: UpdateRule, refresh: Refresh | None = None, plan: Plan | None = None
    ) -> None:
        """One update in place of each row's parameter and states, from its gradient.

        ``refresh``: a captured graph calls it before each replay for the rule of the next step. ``plan``: nothing is
        updated yet, but checked and prepared, and added to the plan.
        """
        optimizers.optimizer_step(self, rows, rule, refresh, plan)

    # -- the price of a call --------------------------------------------------------------------------------------

    def alias(  # noqa: B027
        self, known: Launches, arguments: Sequence[Any], other: Launches, given: Sequence[Any]
    ) -> None:
        """Where an operation's launches know some arguments, those of it or another are to know what means the same.

        An engine without launches has nothing to do.
        """

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its name: what reads it has an engine of that name, or EngineError says why not."""
        return _named, (self.name,)

    def __copy__(self) -> Self:
        """An engine is a device: its copy is itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<engine {self.name}: {self.memory}>"


def _named(name: str) -> Engine:
    """The engine that was pickled under a name."""
    from alpha import engines  # here: it imports this module

    return engines.engine(name)


def _switch(function: str, on: bool) -> bool:
    if not isinstance(on, bool):
        raise ArgumentError(f"[{function}] expected True or False, got {described(on)}")
    return on
