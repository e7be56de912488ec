"""Launches: operations in one call, where an engine knows from an earlier call what arguments like these need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TENSOR = "tensor"
OPTIONAL = "optional"
"""A tensor or None."""
SEVERAL = "several"
"""A tuple of tensors."""
NUMBER = "number"
"""An int or a float, which the kernel gets as a float64."""
KEY = "key"
"""Something that a call is planned for: None, a bool, an int, a float, a str, a tuple of ints."""


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

    In place the first tensor is returned, and both decline tensors that may belong to the graph and others of the same
    memory; who calls them notes the write (``Storage.touch``).
    """

    __slots__ = ("arguments", "in_place", "known", "launch", "launch_outside")

    def __init__(self, *arguments: str, in_place: bool = False) -> None:
        self.arguments, self.in_place = arguments, in_place
        self.launch: Callable[..., Any] = decline
        self.launch_outside: Callable[..., Any] = decline
        self.known: dict[Any, Any] = {}


COPY = Launches(TENSOR, KEY)
"""``Engine.copied``; for ``alpha.clone`` and ``Tensor.contiguous``."""

CONCAT = Launches(SEVERAL, KEY, KEY)
"""``Engine.concat``; for ``alpha.concat``, whose memory order is None."""

STACK = Launches(SEVERAL, KEY)
"""``Engine.stack``; for ``alpha.stack``."""

REDUCTIONS = {op: Launches(TENSOR, KEY, KEY) for op in ("sum", "prod", "max", "min", "mean", "norm")}
"""``Engine.reduce``, ``Engine.mean`` and ``Engine.euclidean_norm`` of floats, axes, and whether these are kept."""

VARIANCE = Launches(TENSOR, KEY, KEY, KEY)
"""``Engine.variance``."""

CUMSUM = Launches(TENSOR, KEY)
"""``Engine.cumsum`` of floats."""

SOFTMAX = Launches(TENSOR, KEY, KEY)
"""``Engine.softmax``."""

SOFTMAX_GRAD = Launches(TENSOR, TENSOR, KEY, KEY)
"""``Engine.softmax_grad``."""

CROSS_ENTROPY = Launches(TENSOR, TENSOR, NUMBER)
"""``Engine.cross_entropy``."""

CROSS_ENTROPY_LOSSES = Launches(TENSOR, TENSOR, NUMBER)
"""``Engine.cross_entropy_losses``."""

CROSS_ENTROPY_GRAD = Launches(TENSOR, TENSOR, TENSOR, NUMBER)
"""``Engine.cross_entropy_grad``."""

ROW_NORM = Launches(TENSOR, OPTIONAL, OPTIONAL, KEY, NUMBER, KEY)
"""``Engine.row_norm``: the result, and the statistics."""
