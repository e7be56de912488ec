"""Dropout: random zeros in training."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.nn.activation import InplaceActivation
from alpha.nn.arguments import probability


class Dropout(InplaceActivation):
    """In training zeroes each element with probability p and scales the others by 1 / (1 - p); else changes nothing.

    The draws come from ``alpha.random`` and repeat after ``alpha.manual_seed``. ``inplace`` writes the result into x.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.p = probability(p, "p", "Dropout")

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return F.dropout(x, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
