"""Engine: the contract between a differentiable function and the hardware.

Functions (``alpha/functions``) call these methods and nothing else, so a new engine implements this class and gets the
whole framework. An engine's methods know nothing of gradients: they take tensors and return new ones. They may trust
that dtypes agree and that axes are in range (the functions check users' input); an engine checks what would make it
follow a bad pointer. Unless said otherwise an argument may have any strides, and a result is dense.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.dtypes import float32
from alpha.errors import EngineError
from alpha.geometry import Geometry
from alpha.mempool import MemoryPool

if TYPE_CHECKING:
    from alpha.tensor import Storage, Tensor

Scalar = bool | int | float
Operand = Any  # Tensor | Scalar; spelled out it makes every call site check what elementwise() checks
Index = tuple[Any, ...]  # slices, ints, None, Ellipsis already resolved, and integer or bool Tensors

IMAGE_ORDER = (1, 2, 0, 3)
"""Memory order of activations behind the logical (N, H, W, C): rows, columns, images, channels."""


@dataclass(frozen=True)
class BatchNormState:
    """What the forward of a training BatchNorm keeps for its backward: per channel mean and 1/sqrt(var + eps)."""

    mean: Tensor
    inverse_std: Tensor


class Engine(ABC):
    """A device that holds tensors and computes with them.

    Attributes:
        name: ``"cpu"``, ``"cu32:0"``.
        memory: the pool every tensor of the engine lives in.
    """

    name: str
    memory: MemoryPool

    # -- switches ------------------------------------------------------------------------------------------------

    @abstractmethod
    def configure(self, *, memory: str | int | None = None, threads: int | None = None) -> None:
        """Changes the pool's cap or the number of threads; ArgumentError for what the engine does not have."""

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

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any] = float32, order: Sequence[int] | None = None) -> Tensor:
        """A dense uninitialised tensor; ``order`` lists the axes from outermost to innermost in memory."""
        from alpha.tensor import Tensor

        return Tensor.dense(self, tuple(shape), dtype, order)

    def empty_like(self, tensor: Tensor, dtype: np.dtype[Any] | None = None) -> Tensor:
        """A dense uninitialised tensor of the same shape and memory order."""
        return self.empty(tensor.shape, dtype or tensor.dtype, tensor.memory_order())

    @abstractmethod
    def from_numpy(self, array: np.ndarray[Any, Any]) -> Tensor:
        """A copy of the array on this engine, in the array's memory order."""

    @abstractmethod
    def to_numpy(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        """The tensor as an array: a view of the same memory where the host can reach it, else a copy."""

    @abstractmethod
    def copy(self, source: Tensor, out: Tensor) -> None:
        """``out[...] = source`` with broadcasting and conversion of dtype."""

    @abstractmethod
    def fill(self, out: Tensor, value: Scalar) -> None:
        """``out[...] = value``."""

    # -- element-wise, reductions, indexing, products ------------------------------------------------------------

    @abstractmethod
    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        """``op`` over broadcast operands, tensors of one dtype or Python numbers, at least one a tensor.

        One operand: neg abs exp log log1p sqrt sin cos tanh sigmoid erf sign floor ceil logical_not isfinite
        reciprocal square. Two: add sub mul div floor_divide remainder pow maximum minimum eq ne lt le gt ge
        logical_and logical_or logical_xor. Three: where (first operand bool). Comparisons, logical_* and isfinite
        return bool; the others the tensors' dtype. The result keeps the memory order of its largest operand.
        ``out`` may be one of the operands.
        """

    @abstractmethod
    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        """``op`` of sum prod max min any all over sorted non-negative axes; float sums are pairwise or better.

        Sums of bool, uint8 and int32 come as int64; any and all as bool.
        """

    @abstractmethod
    def arg_reduce(self, op: str, x: Tensor, axis: int) -> Tensor:
        """``op`` of argmax argmin along one axis, first on ties, as int64 without that axis."""

    @abstractmethod
    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """Values in ascending stable order along an axis, and their int64 indices."""

    @abstractmethod
    def cumsum(self, x: Tensor, axis: int) -> Tensor:
        """Running sums along an axis."""

    @abstractmethod
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Batched matrix product of (..., M, K) and (..., K, N), batch axes broadcast; floats only."""

    @abstractmethod
    def gather(self, x: Tensor, index: Index) -> Tensor:
        """``x[index]`` with NumPy's advanced indexing, as a copy; indices are in range."""

    @abstractmethod
    def scatter(self, out: Tensor, index: Index, values: Operand, accumulate: bool) -> None:
        """``out[index] = values``, or ``+=`` with repeated indices adding up."""

    # -- convolution: C-K-S --------------------------------------------------------------------------------------

    @abstractmethod
    def conv2d(self, x: Tensor, w: Tensor, bias: Tensor | None, geometry: Geometry, groups: int) -> Tensor:
        """ConvV2. x: (N, IH, IW, IC), w: (OC, FH, FW, IC/groups), bias: (OC,); returns (N, OH, OW, OC)."""

    @abstractmethod
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

        The result is added into ``accumulate`` (in image order) where it is given, and bias (IC,) to each position.
        """

    @abstractmethod
    def conv2d_weight_grad(self, x: Tensor, dy: Tensor, geometry: Geometry, groups: int) -> Tensor:
        """Sk-dilated-V2. Returns dw (OC, FH, FW, IC/groups)."""

    # -- normalisation, activation, pooling ----------------------------------------------------------------------

    @abstractmethod
    def channel_sum(self, x: Tensor) -> Tensor:
        """The sum over all axes but the last, accumulated in float64: a bias's gradient."""

    @abstractmethod
    def batch_norm(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
        residual: Tensor | None,
        slope: float | None,
    ) -> tuple[Tensor, BatchNormState]:
        """Training BatchNorm over all axes but the last: act(weight * (x - mean) / sqrt(var + eps) + bias + residual).

        act is LeakyReLU with ``slope`` (0 is ReLU), or nothing for None. The running statistics, where given, are
        updated in place with the unbiased variance.
        """

    @abstractmethod
    def batch_norm_inference(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        var: Tensor,
        eps: float,
        residual: Tensor | None,
        slope: float | None,
    ) -> tuple[Tensor, BatchNormState]:
        """The same with given statistics."""

    @abstractmethod
    def batch_norm_grad(
        self,
        dy: Tensor,
        x: Tensor,
        y: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        state: BatchNormState,
        slope: float | None,
        need_residual: bool,
        training: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Gradients (dx, dweight, dbias, dresidual) of batch_norm.

        ``y`` is the forward's result, given where there was a residual and an activation (its sign is the
        activation's mask; without a residual the mask is computed again from x). With ``training`` False the
        statistics are constants.
        """

    @abstractmethod
    def leaky_relu(self, x: Tensor, slope: float) -> Tensor:
        """max(x, 0) + slope * min(x, 0)."""

    @abstractmethod
    def leaky_relu_grad(self, dy: Tensor, y: Tensor, slope: float) -> Tensor:
        """dy where y > 0, else slope * dy; y may be the function's argument, or its result where slope >= 0."""

    @abstractmethod
    def max_pool2d(self, x: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
        """Maxima (N, OH, OW, C) over the taps inside x, and the int32 tap (fh * FW + fw) of each, first on ties."""

    @abstractmethod
    def max_pool2d_grad(self, dy: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        """dx of max_pool2d from the taps it returned."""

    @abstractmethod
    def avg_pool2d(self, x: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        """Means over windows, of FH * FW elements, or of those inside x where ``count_padding`` is False."""

    @abstractmethod
    def avg_pool2d_grad(self, dy: Tensor, geometry: Geometry, count_padding: bool) -> Tensor:
        """dx of avg_pool2d."""

    # -- losses, random numbers, optimizers ----------------------------------------------------------------------

    @abstractmethod
    def cross_entropy(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        """Per-row losses (N,) and softmax probabilities (N, C) of logits (N, C) and int64 labels (N,) in range.

        Label smoothing e: the target is (1 - e) * onehot + e / C.
        """

    @abstractmethod
    def cross_entropy_grad(self, probabilities: Tensor, labels: Tensor, scale: Tensor, smoothing: float) -> Tensor:
        """d logits = scale * (probabilities - target); scale: (N,) gradients of the rows' losses."""

    @abstractmethod
    def dropout(self, x: Tensor, p: float, seed: int, offset: int) -> tuple[Tensor, Tensor]:
        """(y, mask): element i, counted in logical row-major order, is kept (and scaled by 1 / (1 - p)) when
        ``random.uniforms(seed, offset, ...)[i] >= p``; the mask is bool."""

    @abstractmethod
    def adam_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        first: Sequence[Tensor],
        second: Sequence[Tensor],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        decoupled: bool,
        step: int,
    ) -> None:
        """One Adam (or, decoupled, AdamW) update in place; ``step`` counts from 1. Kingma & Ba, arXiv 1412.6980."""

    @abstractmethod
    def sgd_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        momenta: Sequence[Tensor] | None,
        lr: float,
        momentum: float,
        dampening: float,
        nesterov: bool,
        weight_decay: float,
        first: bool,
    ) -> None:
        """One SGD update in place, PyTorch's form; ``first`` starts the momenta at the gradient."""

    @abstractmethod
    def rmsprop_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        squares: Sequence[Tensor],
        momenta: Sequence[Tensor] | None,
        means: Sequence[Tensor] | None,
        lr: float,
        alpha: float,
        eps: float,
        weight_decay: float,
        momentum: float,
    ) -> None:
        """One RMSprop update in place, PyTorch's form; ``means`` makes it centered."""

    def __repr__(self) -> str:
        return f"<engine {self.name}: {self.memory}>"
