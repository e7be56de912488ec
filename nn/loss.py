"""Losses as modules; see the functions of ``alpha.nn.functional`` for what they compute.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``; ``size_average`` and ``reduce`` are older names of these.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from alpha import functions as F
from alpha.functions.loss_arguments import REDUCTIONS, reduction_of
from alpha.nn.arguments import choice, probability
from alpha.nn.function_layer import FunctionLayer


class _Loss(FunctionLayer):
    """Base of the losses: the older names of reductions are translated by the constructor."""

    reductions: ClassVar[tuple[str, ...]] = REDUCTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name, options = type(self).__name__, vars(self)
        size_average, reduce = options.get("size_average"), options.get("reduce")
        self.reduction = choice(options["reduction"], self.reductions, "reduction", name)
        if size_average is not None or reduce is not None:
            self.reduction = reduction_of(name, self.reduction, size_average, reduce)
            self.size_average = self.reduce = None

    def _checked(self, name: str, value: Any) -> Any:
        return value if name == "reduction" else super()._checked(name, value)

    def extra_repr(self) -> str:
        return ""


_OLDER = "size_average reduce reduction"


class CrossEntropyLoss(_Loss, function=F.cross_entropy, inputs=2):
    """Cross-entropy of softmax(input) with class indices, or with each class's probability.

    Args:
        weight: a weight for each class, (C,).
        size_average, reduce: older names of reductions.
        ignore_index: a class whose rows count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the rows.
        label_smoothing: share of the target spread evenly over all classes.
        layout: where the classes are among several axes, as for ``Conv2d``.
    """

    def _checked(self, name: str, value: Any) -> Any:
        return probability(value, name, "CrossEntropyLoss") if name == "label_smoothing" else value


class NLLLoss(_Loss, function=F.nll_loss, inputs=2):
    """-input[target] of log-probabilities; arguments as for ``CrossEntropyLoss``."""


class NLLLoss2d(NLLLoss):
    """``NLLLoss``, of which it is an older name; making one warns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn("[NLLLoss2d] is an older name: use NLLLoss", FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class L1Loss(_Loss, function=F.l1_loss, inputs=2, options=_OLDER):
    """|input - target|."""


class MSELoss(_Loss, function=F.mse_loss, inputs=2, options=_OLDER):
    """(input - target)**2."""


class SmoothL1Loss(_Loss, function=F.smooth_l1_loss, inputs=2):
    """Squared errors below ``beta``, absolute ones above."""


class HuberLoss(_Loss, function=F.huber_loss, inputs=2, options="reduction delta"):
    """Squared errors up to ``delta``, absolute ones above, with a slope of ``delta``."""


class BCELoss(_Loss, function=F.binary_cross_entropy, inputs=2):
    """Binary cross-entropy of probabilities with targets from 0 to 1; ``weight`` broadcasts to them."""


class BCEWithLogitsLoss(_Loss, function=F.binary_cross_entropy_with_logits, inputs=2):
    """Binary cross-entropy of sigmoid(input) with targets from 0 to 1.

    Args:
        weight: weight of the elements, broadcast against the input.
        size_average, reduce: older names of reductions.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: weight of the positive targets, broadcast against the input.
    """


class KLDivLoss(_Loss, function=F.kl_div, inputs=2):
    """Kullback-Leibler divergence of log-probabilities; ``reduction`` may be ``"batchmean"`` too."""

    reductions = ("mean", "batchmean", "sum", "none")


class PoissonNLLLoss(_Loss, function=F.poisson_nll_loss, inputs=2):
    """-log of a count's probability under a Poisson distribution."""


class GaussianNLLLoss(_Loss, function=F.gaussian_nll_loss, inputs=3):
    """-log of the target's density under a normal distribution of mean ``input`` and variance ``var``."""


class SoftMarginLoss(_Loss, function=F.soft_margin_loss, inputs=2):
    """log(1 + exp(-target * input)) of targets of 1 and -1."""


class HingeEmbeddingLoss(_Loss, function=F.hinge_embedding_loss, inputs=2):
    """The input where the target is 1, max(0, margin - input) where it is -1."""


class CosineEmbeddingLoss(_Loss, function=F.cosine_embedding_loss, inputs=3):
    """1 - cos of two vectors where the target is 1, max(0, cos - margin) where it is -1."""


class MarginRankingLoss(_Loss, function=F.margin_ranking_loss, inputs=3):
    """max(0, margin - target * (input1 - input2)) of targets of 1 and -1."""


class MultiMarginLoss(_Loss, function=F.multi_margin_loss, inputs=2):
    """The hinge loss of scores and classes."""


class MultiLabelMarginLoss(_Loss, function=F.multilabel_margin_loss, inputs=2):
    """The hinge loss of scores and several classes each."""


class MultiLabelSoftMarginLoss(_Loss, function=F.multilabel_soft_margin_loss, inputs=2):
    """The mean binary cross-entropy over classes."""


class TripletMarginLoss(_Loss, function=F.triplet_margin_loss, inputs=3):
    """max(0, margin + d(anchor, positive) - d(anchor, negative))."""


class TripletMarginWithDistanceLoss(_Loss, function=F.triplet_margin_with_distance_loss, inputs=3):
    """``TripletMarginLoss`` with a distance of one's own."""


class CTCLoss(_Loss, function=F.ctc_loss, inputs=4):
    """-log of the probability of labels under all their alignments with a sequence."""
