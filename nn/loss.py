"""Losses as modules: CrossEntropyLoss, MSELoss, BCEWithLogitsLoss."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.nn.arguments import choice, probability
from alpha.nn.layout import ImageLayer
from alpha.nn.module import Module

_REDUCTIONS = ("mean", "sum", "none")


class CrossEntropyLoss(ImageLayer):
    """Cross-entropy of softmax(logits) with class indices; see ``functional.cross_entropy``.

    Args:
        weight: a weight for each class, (C,).
        ignore_index: a class whose rows count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the rows.
        label_smoothing: share of the target spread evenly over all classes.
        layout: where the classes are among several axes, as for ``Conv2d``.
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        layout: str | None = None,
    ) -> None:
        super().__init__()
        self._set_layout(layout)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = choice(reduction, _REDUCTIONS, "reduction", "CrossEntropyLoss")
        self.label_smoothing = probability(label_smoothing, "label_smoothing", "CrossEntropyLoss")

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Logits (..., C) and int64 classes (...) to a number, or (...) with reduction "none"."""
        return F.cross_entropy(
            logits,
            target,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            ignore_index=self.ignore_index,
            weight=self.weight,
            layout=self.layout,
        )


class MSELoss(Module):
    """(input - target)**2, averaged, summed or as it is."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = choice(reduction, _REDUCTIONS, "reduction", "MSELoss")

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape to a number, or to that shape with reduction "none"."""
        return F.mse_loss(input, target, reduction=self.reduction)


class BCEWithLogitsLoss(Module):
    """Binary cross-entropy of sigmoid(input) with targets from 0 to 1.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: weight of the positive targets, broadcast against the input.
    """

    pos_weight: Tensor | None

    def __init__(self, *, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__()
        self.reduction = choice(reduction, _REDUCTIONS, "reduction", "BCEWithLogitsLoss")
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Two tensors of one shape to a number, or to that shape with reduction "none"."""
        return F.binary_cross_entropy_with_logits(input, target, pos_weight=self.pos_weight, reduction=self.reduction)
