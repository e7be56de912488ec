"""Explanation: how an engine would compute an operator, as it tells when asked."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    problem: str
    algorithm: str
    choice: str
    useful: int
    nominal: int
    predicted_ms: float
    measured_ms: float | None = None

    def __str__(self) -> str:
        measured = "" if self.measured_ms is None else f", measured {_time(self.measured_ms, self.useful)}"
        return (
            f"{self.problem}\n"
            f"algorithm: {self.algorithm}, {1e-9 * self.useful:.4g} useful of {1e-9 * self.nominal:.4g} nominal GFLOP "
            f"({self.useful / self.nominal:.0%})\n"
            f"choice: {self.choice}\n"
            f"time: predicted {_time(self.predicted_ms, self.useful)}{measured}"
        )


def _time(milliseconds: float, useful: int) -> str:
    return f"{milliseconds:.4g} ms ({1e-9 * useful / milliseconds:.3g} useful TFLOP/s)"
