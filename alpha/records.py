"""What engines and functions pass to each other beside tensors: statistics, weighted sums, checks of indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alpha.errors import AlphaError
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alpha.expressions.program import Program

Scalar = bool | int | float
Operand = Any  # Tensor | Scalar; spelled out it makes every call site check what elementwise() checks
Index = tuple[Any, ...]  # slices, ints, None, and integer or bool Tensors: an entry for every axis, no Ellipsis

IMAGE_ORDER = (1, 2, 0, 3)
"""Memory order of activations behind the logical (N, H, W, C): rows, columns, images, channels."""
FILTER_ORDER = (0, 1, 2, 3)
"""Memory order of filters (OC, FH, FW, IC)."""


class RunningStatistics(NamedTuple):
    """Running statistics, which normalisation in training updates in place.

    Attributes:
        mean: (C,), or None where none is kept.
        var: (C,), or None where none is kept; takes the unbiased variance of a batch.
        momentum: the share that the newest batch has in them.
        batches: (), how many batches there were, which becomes one more; None where nobody counts.
    """

    mean: Tensor | None = None
    var: Tensor | None = None
    momentum: float = 0.1
    batches: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those that are updated."""
        return tuple(kept for kept in (self.mean, self.var, self.batches) if kept is not None)


class Epilogue(NamedTuple):
    """What a BatchNorm does with the normalised x: act(weight * x + bias + residual).

    Attributes:
        weight: (C,), or None for 1.
        bias: (C,), or None for 0.
        slope: act is LeakyReLU with this slope (0 is ReLU), or nothing for None.
    """

    weight: Tensor | None = None
    bias: Tensor | None = None
    slope: float | None = None


class RowPass(NamedTuple):
    """A point-wise function over some rows of matrices at a time (``Engine.row_pass``).

    Attributes:
        function: its name, for messages.
        program: what it computes.
        tensors: what it reads, matrices; a number k stands for part k of the matrix that each call gives, cut into
            ``parts`` of equally many columns.
        outs: where its results go, one each, of one width and of the results' dtype. A matrix that is read may be one
            of them, or share no memory with any; they share none with each other.
        rows: matrices with so many rows are read and written from the row on that a call names, others from their first
            one; those with one row are repeated.
        parts: of the matrix that each call gives.
    """

    function: str
    program: Program
    tensors: tuple[Tensor | int, ...]
    outs: tuple[Tensor, ...]
    rows: int
    parts: int = 1

    def moves(self, x: Tensor) -> bool:
        """Whether a call reads or writes a matrix from its first row on."""
        return x.shape[0] == self.rows

    def layout(self, x: Tensor, count: int) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        """Shape, strides and dtype of the rows of a call."""
        return (min(count, x.shape[0]), x.shape[1]), x.strides, x.dtype


RowCall = Callable[[int, int, "Tensor"], None]
"""Computes a row pass: of the first row, the number of rows, and the matrix that the call gives."""


class PointwiseStep(NamedTuple):
    """A point-wise function of one tensor of floats, which follows another operation in the same pass.

    Attributes:
        function: its name, for messages.
        program: what it computes (``alpha.expressions.program``), of one tensor.
        numbers: those that the program takes.
    """

    function: str
    program: Program
    numbers: Sequence[float]


class BatchNormState(NamedTuple):
    """What the forward of a BatchNorm keeps for its backward.

    Attributes:
        mean: (C,), of the numbers that were normalised.
        inverse_std: (C,), 1 / sqrt(var + eps).
        training: whether these are x's own, through which its gradient goes too, or constants.
        invertible: whether ``batch_norm_inverse_grad`` can recover x from the result (and the residual) without loss.
    """

    mean: Tensor
    inverse_std: Tensor
    training: bool
    invertible: bool = False


class Normalised(NamedTuple):
    """A tensor, and what BatchNorm has found to normalise it by.

    Attributes:
        x: (..., C).
        epilogue: weight, bias, and the slope of the activation behind it.
        state: the statistics.
    """

    x: Tensor
    epilogue: Epilogue
    state: BatchNormState


class NormGradients(NamedTuple):
    """What a BatchNorm's gradient takes over all rows.

    Attributes:
        sums: (2, C), of the gradient g past the activation, and of g * (x - mean).
        weight, bias: (C,), their gradients.
    """

    sums: Tensor
    weight: Tensor
    bias: Tensor


class PairGradients(NamedTuple):
    """The same of two BatchNorms whose results are added to each other.

    Attributes:
        sums: (3, C), of the gradient g past the activation, of g * (x - mean), and the latter for the other one.
        weight, bias, other_weight, other_bias: (C,), their gradients.
    """

    sums: Tensor
    weight: Tensor
    bias: Tensor
    other_weight: Tensor
    other_bias: Tensor


class ToNormalise(NamedTuple):
    """A tensor, and how BatchNorm in training is to normalise it.

    Attributes:
        x: (..., C).
        weight, bias: (C,), or None for 1 and 0.
        running: the running statistics, updated in place.
        eps: added to the variance.
        state: the batch's statistics, where they have been found with x; the running ones are updated already then.
    """

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    running: RunningStatistics
    eps: float
    state: BatchNormState | None = None


class Measurement:
    """What BatchNorm in training wants to know of a tensor that is still to be made.

    Attributes:
        running: the running statistics, updated in place.
        eps: added to the variance.
        vectors: (C,), BatchNorm's weight and bias, as far as it has them.
        residual: what it will add, shaped as the tensor.
        state: the statistics, once they have been found.
    """

    __slots__ = ("eps", "residual", "running", "state", "vectors")

    def __init__(
        self, running: RunningStatistics, eps: float, vectors: Iterable[Tensor | None], residual: Tensor | None
    ) -> None:
        self.running, self.eps, self.residual = running, eps, residual
        self.vectors = tuple(one for one in vectors if one is not None)
        self.state: BatchNormState | None = None

    def fits(self, shape: tuple[int, ...], like: Tensor) -> bool:
        """Whether BatchNorm takes a tensor of such a shape, and of the dtype and the engine of ``like``."""
        mean, var, _, batches = self.running
        return are_alike(shape, like, (mean, var, *self.vectors), self.residual) and (
            batches is None or (batches.shape == () and batches.storage.engine is like.storage.engine)
        )


def are_alike(shape: tuple[int, ...], like: Tensor, vectors: Iterable[Tensor | None], residual: Tensor | None) -> bool:
    """Whether BatchNorm takes these with a tensor of a shape, of the dtype and on the engine of ``like``.

    Vectors have a number for each channel, a residual has the shape, and all are tensors of that dtype on that engine.
    """
    engine, dtype, channels = like.storage.engine, like.dtype, shape[-1:]
    for one in vectors:
        if one is not None and not (
            isinstance(one, Tensor) and one.shape == channels and one.dtype == dtype and one.storage.engine is engine
        ):
            return False
    return residual is None or (
        isinstance(residual, Tensor)
        and residual.shape == shape
        and residual.dtype == dtype
        and residual.storage.engine is engine
    )


class AttentionState(NamedTuple):
    """What attention's gradient takes beside the gradient of its result.

    Attributes:
        q, k, v, mask: its arguments.
        y: its result.
        lse: the logarithms of the softmax's sums.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    y: Tensor
    lse: Tensor


class AttentionSettings(NamedTuple):
    """How attention's scores become probabilities.

    Attributes:
        scale: by what the scores are multiplied.
        causal: whether query i sees keys 0..i alone.
        dropout: the probability with which a probability is dropped.
        seed: with ``offset`` the place of the scores' random words, of ``random.reserve``; they are counted in
            row-major order over heads, queries and keys.
        offset: see ``seed``.
    """

    scale: float
    causal: bool
    dropout: float = 0.0
    seed: int = 0
    offset: int = 0


@dataclass(frozen=True, eq=False)
class WeightedPairs:
    """For each position of a result the positions of the argument that it is made of, and the weight of each.

    Those of position p are starts[p]..starts[p + 1] - 1 of ``sources`` (int64) and ``weights`` (float64).
    """

    starts: np.ndarray[Any, Any]
    sources: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]

    @staticmethod
    def make(
        owners: np.ndarray[Any, Any], sources: np.ndarray[Any, Any], weights: np.ndarray[Any, Any], positions: int
    ) -> WeightedPairs:
        """From pairs in the order of the positions that they belong to."""
        return WeightedPairs(np.searchsorted(owners, np.arange(positions + 1)), sources, weights)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The first and the last source; 0 and -1 where there is none."""
        return (int(self.sources.min()), int(self.sources.max())) if len(self.sources) else (0, -1)

    @cached_property
    def chooses(self) -> bool:
        """Whether each position is one of the argument's, with weight 1."""
        return len(self.sources) == len(self.starts) - 1 == int((np.diff(self.starts) == 1).sum()) and bool(
            (self.weights == 1).all()
        )

    @cached_property
    def reads_once(self) -> bool:
        """Whether each source belongs to one position alone."""
        return len(np.unique(self.sources)) == len(self.sources)

    def repeats(self, length: int) -> int:
        """How many positions each of an axis of ``length`` is repeated to, in its order; 0 if it is something else."""
        times = len(self.sources) // max(length, 1)
        repeated = np.repeat(np.arange(length), times)
        return times if self.chooses and times and np.array_equal(self.sources, repeated) else 0

    @cached_property
    def weights32(self) -> np.ndarray[Any, Any]:
        """The weights as float32."""
        return self.weights.astype(np.float32)


@dataclass(frozen=True)
class RangeCheck:
    """The error for an index out of range: ``kind`` with the message, its {value} and {position} filled in."""

    kind: type[AlphaError]
    message: str

    def error(self, value: object, position: object) -> AlphaError:
        """The error for the element at a position (counted in row-major order)."""
        return self.kind(self.message.format(value=value, position=position))
