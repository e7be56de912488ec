"""Explanation: how an engine would compute an operator, as it tells when asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpha.errors import ShapeError
from alpha.functions.conv import Ints, numbers
from alpha.geometry import Geometry


@dataclass(frozen=True)
class Explanation:
    """How an engine computes an operator; as text, a line for each.

    Attributes:
        problem: the operator and its sizes.
        algorithm: "ConvV2", "KS-deconv-V2", "Sk-dilated-V2", or what else it takes.
        choice: the kernel with its tile and split.
        useful, nominal: floating-point operations: those without a zero of padding, stride or dilation, and those of an
            algorithm that multiplies the padding too.
        predicted_ms: by the engine's model, in milliseconds.
        measured_ms: where it was timed on this device.
        name: of the algorithm, as the engine's planner takes it, where its algorithms have names.
        note: what else a user should know of the prediction.
    """

    problem: str
    algorithm: str
    choice: str
    useful: int
    nominal: int
    predicted_ms: float
    measured_ms: float | None = None
    name: str | None = None
    note: str | None = None

    def __str__(self) -> str:
        measured = "" if self.measured_ms is None else f", measured {_time(self.measured_ms, self.useful)}"
        note = "" if self.note is None else f"\nnote: {self.note}"
        return (
            f"{self.problem}\n"
            f"algorithm: {self.algorithm}, {1e-9 * self.useful:.4g} useful of {1e-9 * self.nominal:.4g} nominal GFLOP "
            f"({self.useful / self.nominal:.0%})\n"
            f"choice: {self.choice if self.name is None else f'{self.name}, {self.choice}'}\n"
            f"time: predicted {_time(self.predicted_ms, self.useful)}{measured}{note}"
        )


def geometry_of(
    x_shape: Sequence[int], w_shape: Sequence[int], stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Geometry:
    """The geometry of a convolution that is to be explained; ShapeError for shapes that do not fit."""
    fits = len(x_shape) == len(w_shape) == 4 and groups > 0
    if not fits or x_shape[3] != w_shape[3] * groups or w_shape[0] % groups or min(*x_shape, *w_shape) < 1:
        raise ShapeError(
            "[explain] expected x_shape (N, IH, IW, IC) and w_shape (OC, FH, FW, IC / groups), got "
            f"{tuple(x_shape)} and {tuple(w_shape)} in {groups} groups"
        )
    steps = (("stride", stride), ("padding", padding), ("dilation", dilation))
    pairs = [numbers("explain", *step, axes=2) for step in steps]
    return Geometry.make(tuple(x_shape[1:3]), tuple(w_shape[1:3]), *pairs)


def _time(milliseconds: float, useful: int) -> str:
    return f"{milliseconds:.4g} ms ({1e-9 * useful / milliseconds:.3g} useful TFLOP/s)"
