"""AdaptiveLogSoftmaxWithLoss: a softmax over very many classes, most of them rare."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import alpha
from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag, number
from alpha.dtypes import DtypeLike, is_integer
from alpha.engine import RangeCheck
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.operands import check_float, check_tensor
from alpha.nn.arguments import positive
from alpha.nn.containers import ModuleList, Sequential
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.places import Device, placed

_NAME = "AdaptiveLogSoftmaxWithLoss"


class OutputAndLoss(NamedTuple):
    """The targets' log-probabilities, and the loss: minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-softmax of classes sorted by frequency, the rare ones in clusters. Grave et al., arXiv 1609.04309.

    ``head`` scores the frequent classes and the clusters; ``tail`` scores the classes of each cluster, through fewer
    and fewer features.

    Args:
        in_features: length of an input.
        n_classes: the number of classes, the most frequent first.
        cutoffs: where clusters begin, increasing; the first is the number of classes that the head scores itself.
        div_value: by which power the features of the clusters grow fewer.
        head_bias: whether the head has a bias.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    @placed
    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__()
        self.in_features = positive(in_features, "in_features", _NAME)
        self.n_classes = positive(n_classes, "n_classes", _NAME)
        starts = list(cutoffs) if isinstance(cutoffs, tuple | list) else []
        starts = [positive(start, "cutoffs", _NAME) for start in starts]
        if not starts or any(a >= b for a, b in pairwise([*starts, self.n_classes])):
            raise ArgumentError(
                f"[{_NAME}] expected cutoffs that increase, the last below n_classes {n_classes}, got {cutoffs!r}"
            )
        self.cutoffs = [*starts, self.n_classes]
        self.div_value = number(_NAME, "div_value", div_value)
        self.head_bias = flag(_NAME, "head_bias", head_bias)
        self.shortlist_size = starts[0]
        self.n_clusters = len(starts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(self.in_features, self.head_size, self.head_bias)
        self.tail = ModuleList()
        for place, (start, stop) in enumerate(pairwise(self.cutoffs), 1):
            hidden = int(self.in_features // self.div_value**place)
            if hidden < 1:
                raise ArgumentError(
                    f"[{_NAME}] expected a feature or more for every cluster, got {hidden} for number {place}: make "
                    "div_value smaller, or use fewer cutoffs"
                )
            self.tail.append(Sequential(Linear(self.in_features, hidden, False), Linear(hidden, stop - start, False)))

    def reset_parameters(self) -> None:
        """Draws all weights as ``Linear`` does."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> OutputAndLoss:
        """The log-probability of each row's class, and minus their mean.

        Args:
            input: (N, in_features), or (in_features,) of one.
            target: (N,), or () of one: class indices.
        """
        rows, classes = self._checked(input, target)
        scores = F.log_softmax(self.head(rows), 1)
        in_head, parts = classes, []
        for place, (start, stop) in enumerate(pairwise(self.cutoffs)):
            inside = F.logical_and(classes >= start, classes < stop)
            in_head = F.where(inside, self.shortlist_size + place, in_head)
            chosen = F.reshape(F.nonzero(inside), (-1,))
            if chosen.shape[0]:
                within = F.log_softmax(self.tail[place](F.index_select(rows, 0, chosen)), 1)
                places = F.unsqueeze(F.index_select(classes, 0, chosen) - start, 1)
                parts.append((chosen, F.squeeze(F.gather(within, 1, places), 1)))
        output = F.squeeze(F.gather(scores, 1, F.unsqueeze(in_head, 1)), 1)
        for chosen, part in parts:
            output = F.index_add(output, 0, chosen, part)
        loss = -F.mean(output)
        return OutputAndLoss(F.squeeze(output, 0) if input.ndim == 1 else output, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities (N, n_classes) of all classes of an input (N, in_features)."""
        return self._full(self._rows(input), self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class (N,) of an input (N, in_features)."""
        rows = self._rows(input)
        scores = self.head(rows)
        best = F.argmax(scores, 1)
        beyond = best >= self.shortlist_size
        if not bool(F.any(beyond)):
            return best
        if bool(F.all(beyond)):
            return F.argmax(self._full(rows, scores), 1)
        chosen = F.reshape(F.nonzero(beyond), (-1,))
        several = self._full(F.index_select(rows, 0, chosen), F.index_select(scores, 0, chosen))
        return F.index_copy(best, 0, chosen, F.argmax(several, 1))

    def _full(self, rows: Tensor, scores: Tensor) -> Tensor:
        """The log-probabilities of all classes, by the head's scores."""
        head = F.log_softmax(scores, 1)
        parts = [head[:, : self.shortlist_size]]
        for place, cluster in enumerate(self.tail, self.shortlist_size):
            parts.append(F.log_softmax(cluster(rows), 1) + head[:, place : place + 1])
        return F.concat(parts, 1)

    def _rows(self, input: Tensor) -> Tensor:
        check_float(_NAME, input)
        if input.ndim != 2 or input.shape[1] != self.in_features:
            raise ShapeError(f"[{_NAME}] expected an input (N, {self.in_features}), got {input.shape}")
        return input

    def _checked(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (N, in_features) and their classes (N,)."""
        check_float(_NAME, input)
        check_tensor(_NAME, target)
        input.engine.check_owner(_NAME, target)
        if not is_integer(target.dtype):
            raise DtypeError(f"[{_NAME}] expected class indices as target, got {described(target.dtype)}: cast them")
        if input.ndim not in (1, 2) or input.shape[-1] != self.in_features or target.shape != input.shape[:-1]:
            raise ShapeError(
                f"[{_NAME}] expected an input (N, {self.in_features}) and a target (N,), or both of one alone, got "
                f"{input.shape} and {target.shape}"
            )
        message = f"[{_NAME}] expected classes in 0..{self.n_classes - 1}, got {{value}}: check the targets"
        classes = target.detach().astype(alpha.int64)
        classes = target.engine.check_range(classes, 0, self.n_classes, RangeCheck(ArgumentError, message))
        return (F.unsqueeze(input, 0), F.unsqueeze(classes, 0)) if input.ndim == 1 else (input, classes)
