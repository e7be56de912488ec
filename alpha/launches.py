"""Launches: operations in one call, where an engine knows from an earlier call what arguments like these need."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

TENSOR = "tensor"
OPTIONAL = "optional"
"""A tensor or None."""
SEVERAL = "several"
"""A tuple of tensors."""
ENGINE = "engine"
"""The engine that makes the result, where there is no tensor to tell it."""
NUMBER = "number"
"""An int or a float, which the kernel gets as a float64, or an int that it gets as an int64."""
KEY = "key"
"""What a call is planned for: None, a bool, an int, a float, a str, a dtype, a tuple of ints, or a Geometry that stays
one."""


def decline(*_: Any) -> None:
    """A launch of an operation that no engine has prepared."""


class Launches:
    """The launches of one operation; an engine makes them once it knows how to call it (``alpha.cpu.launches``).

    Attributes:
        arguments: the kinds of the arguments, in their order.
        in_place: whether the result is written into the first tensor.
        launch: of the arguments the result, or a tuple of several, in one call; None where the engine has to be asked.
        launch_outside: as ``launch``; it also declines tensors that may belong to the graph.
        known: what the engine keeps for these.
        missed: how many calls it could not learn because it knew as many as it keeps.

    In place the first tensor is returned, and both decline tensors that may belong to the graph and others of the same
    memory; who calls them notes the write (``Storage.touch``).
    """

    __slots__ = ("arguments", "in_place", "known", "launch", "launch_outside", "missed")

    def __init__(self, *arguments: str, in_place: bool = False) -> None:
        self.arguments, self.in_place = arguments, in_place
        self.launch: Callable[..., Any] = decline
        self.launch_outside: Callable[..., Any] = decline
        self.known: dict[Any, Any] = {}
        self.missed = 0

    def forget(self) -> None:
        """Declines all calls again."""
        self.launch = self.launch_outside = decline
        self.known = {}
        self.missed = 0


# Where a function takes other arguments than the engine's method, it has launches of its own, which ``Engine.alias``
# makes known.

COPY = Launches(TENSOR, KEY)
"""``Engine.copied``: x, order. For ``alpha.clone`` and ``alpha.contiguous``."""

COPY_INTO = Launches(TENSOR, TENSOR, in_place=True)
"""``Engine.copy`` of one dtype: out, source. For ``alpha.copy_``."""

CONCAT = Launches(SEVERAL, KEY, KEY)
"""``Engine.concat``: tensors, axis, order. For ``alpha.concat``, whose order is None."""

STACK = Launches(SEVERAL, KEY)
"""``Engine.stack``: tensors, axis. For ``alpha.stack``."""

FLIP = Launches(TENSOR, KEY)
"""``Engine.flip``: x, axes. For ``alpha.flip``."""

PAD = Launches(TENSOR, KEY, KEY, KEY, KEY)
"""``Engine.pad``: x, before, after, mode, value."""

PAD_FUNCTION = Launches(TENSOR, KEY, KEY, KEY)
"""``alpha.pad``: x, padding, mode, value."""

INDEX_SELECT = Launches(TENSOR, KEY, TENSOR, KEY)
"""``Engine.index_select``: x, axis, index, ``from_end``. For ``alpha.index_select``, ``embedding`` and ``x[index]``."""

GATHER_ALONG = Launches(TENSOR, KEY, TENSOR)
"""``Engine.gather_along``: x, axis, index. For ``alpha.gather``."""

TAKE_ALONG_DIM = Launches(TENSOR, TENSOR, KEY)
"""``alpha.take_along_dim``: x, index, dim."""

FULL = Launches(ENGINE, KEY, NUMBER, KEY)
"""``Engine.full`` in row-major order, of a number that the dtype holds: shape, value, dtype. For ``alpha.full``,
``zeros`` and ``ones``."""

EYE = Launches(ENGINE, KEY, KEY, KEY)
"""``Engine.eye``: rows, columns, dtype."""

FULL_LIKE = Launches(TENSOR, NUMBER)
"""``Engine.full_like`` in x's dtype, of a number that it holds: x, value. For ``alpha.full_like``."""

RANDOM = Launches(ENGINE, KEY, KEY, KEY, KEY, KEY, NUMBER, NUMBER)
"""``Engine.random``: the draw's distribution, shape, dtype, first and second, and seed and offset with the bits of an
int64."""

ONE_HOT = Launches(TENSOR, KEY)
"""``Engine.one_hot`` of integers of 64 bits: labels, classes. For ``alpha.one_hot`` of labels with one axis."""

PUT = Launches(TENSOR, KEY, TENSOR, TENSOR, in_place=True)
"""``Engine.scatter`` of entries along an axis: out, axis, index, values. For ``x[index] = values``."""

PUT_SELECTED = Launches(TENSOR, TENSOR, TENSOR, in_place=True)
"""``Engine.scatter`` of one element where a mask holds: out, mask, value. For ``x[mask] = value``."""

MAX_POOL2D = Launches(TENSOR, KEY, KEY)
"""``Engine.max_pool2d``: x, geometry, ``need_taps``; two results where the taps are needed."""

MAX_POOL2D_GRAD = Launches(TENSOR, TENSOR, KEY)
"""``Engine.max_pool2d_grad``: dy, taps, geometry."""

MAX_POOL2D_FUNCTION = Launches(TENSOR, KEY, KEY, KEY, KEY, KEY)
"""``alpha.max_pool2d``: x, ``kernel_size``, stride, padding, dilation, ``ceil_mode``."""

AVG_POOL2D = Launches(TENSOR, KEY, KEY)
"""``Engine.avg_pool2d``: x, geometry, ``count_padding``."""

AVG_POOL2D_GRAD = Launches(TENSOR, KEY, KEY)
"""``Engine.avg_pool2d_grad``: dy, geometry, ``count_padding``."""

AVG_POOL2D_FUNCTION = Launches(TENSOR, KEY, KEY, KEY, KEY, KEY)
"""``alpha.avg_pool2d``: x, ``kernel_size``, stride, padding, ``ceil_mode``, ``count_include_pad``."""

PRODUCT_ALGORITHM: ContextVar[str | None] = ContextVar("alpha_cpu_product_algorithm", default=None)
"""What is to compute products of matrices on the CPU, where users name it (``alpha.cpu.product_planner.use``)."""

MATMUL = Launches(TENSOR, TENSOR, KEY)
"""``Engine.matmul`` of small matrices: x, y, ``PRODUCT_ALGORITHM``. For ``alpha.matmul``."""

LINEAR = Launches(TENSOR, TENSOR, OPTIONAL, KEY, KEY)
"""``Engine.linear`` of small matrices without a function behind it: x, w, bias, ``PRODUCT_ALGORITHM``, whether it is
inference. For ``alpha.linear``."""

DOT = Launches(TENSOR, TENSOR)
"""``Engine.gemv`` of a matrix of one row: the row, x; a number. For ``alpha.dot``."""

REDUCTIONS = {op: Launches(TENSOR, KEY, KEY) for op in ("sum", "prod", "max", "min", "mean", "norm")}
"""``Engine.reduce``, ``Engine.mean`` and ``Engine.euclidean_norm`` of floats: x, axes, ``keepdims``."""

VARIANCE = Launches(TENSOR, KEY, KEY, KEY)
"""``Engine.variance``: x, axes, correction, ``keepdims``; two results. For ``alpha.var`` and ``alpha.std``."""

CUMSUM = Launches(TENSOR, KEY)
"""``Engine.cumsum`` of floats: x, axis. For ``alpha.cumsum``."""

SOFTMAX = Launches(TENSOR, KEY, KEY)
"""``Engine.softmax``: x, axis, log. For ``alpha.softmax`` and ``alpha.log_softmax``."""

SOFTMAX_GRAD = Launches(TENSOR, TENSOR, KEY, KEY)
"""``Engine.softmax_grad``: dy, y, axis, log."""

CROSS_ENTROPY = Launches(TENSOR, TENSOR, NUMBER)
"""``Engine.cross_entropy``: logits, labels, smoothing; two results."""

CROSS_ENTROPY_LOSSES = Launches(TENSOR, TENSOR, NUMBER)
"""``Engine.cross_entropy_losses``: logits, labels, smoothing."""

CROSS_ENTROPY_GRAD = Launches(TENSOR, TENSOR, TENSOR, NUMBER)
"""``Engine.cross_entropy_grad``: probabilities, labels, scale, smoothing."""

NLL_LOSS = Launches(TENSOR, TENSOR, KEY, KEY)
"""``Engine.nll_loss`` without what its gradient takes: rows, labels, ``ignore_index``, reduction."""

GROUP_NORM = Launches(TENSOR, OPTIONAL, OPTIONAL, KEY, NUMBER)
"""``Engine.group_norm`` without running statistics: x, weight, bias, groups, eps; result and statistics."""

ROW_NORM = Launches(TENSOR, OPTIONAL, OPTIONAL, KEY, NUMBER, KEY)
"""``Engine.row_norm``: x, weight, bias, axes, eps, centered; two results. ``alpha.layer_norm`` and ``rms_norm`` give
the normalised shape for the number of axes."""
