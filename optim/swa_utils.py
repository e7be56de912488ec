"""Averages of a network's weights, and what training with them needs, by the names of ``torch.optim.swa_utils``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import alpha
from alpha.arguments import flag, number
from alpha.changes import Rewriting
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, ShapeError, described
from alpha.nn.arguments import choice
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm
from alpha.optim.optimizer import Optimizer
from alpha.optim.schedules.base import LRScheduler, check_optimizer, cosine, count, per_group
from alpha.tensor import Tensor

Net = TypeVar("Net", bound=Module)
Average = Callable[[Tensor, Tensor, Any], Tensor]
"""The new average, from the old one, a network's tensor and the number of networks in the average."""
Averages = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]
"""Writes the new averages over the old ones."""


class AveragedModel(Module, Generic[Net]):
    """An average of a network's weights: the mean of all networks, or what ``avg_fn`` makes of it.

    Call ``update_parameters(model)`` after each ``optimizer.step()``, or each epoch; the first call copies. In
    evaluation the average is called as the network is. Izmailov et al., arXiv 1803.05407.

    Args:
        model: the network; the average begins as a copy of it that needs no gradients.
        device: where the average is kept; None: where the network is.
        avg_fn: a function of an average, a network's tensor and the number of networks so far: the new average.
        multi_avg_fn: instead of it, a function of lists of averages and tensors, and the number, that writes into the
            averages.
        use_buffers: whether floating-point buffers (BatchNorm's statistics) are averaged too; else they are copied.

    Attributes:
        module: the averaged network.
        n_averaged: int64 buffer, the number of updates.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Net,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(model, Module):
            raise ArgumentError(f"[AveragedModel] expected a Module, got {described(model)}")
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("[AveragedModel] expected avg_fn or multi_avg_fn, got both: leave one out")
        for name, function in (("avg_fn", avg_fn), ("multi_avg_fn", multi_avg_fn)):
            if function is not None and not callable(function):
                raise ArgumentError(f"[AveragedModel] expected {name} as a function, got {described(function)}")
        self.avg_fn, self.multi_avg_fn = avg_fn, multi_avg_fn
        self.use_buffers = flag("AveragedModel", "use_buffers", use_buffers)
        self.module: Net = copy.deepcopy(model)
        self.module.requires_grad_(False)
        if device is not None:
            self.module.to(device)
        first = next(self.module.parameters(), None)
        engine = None if first is None else first.engine
        self.register_buffer("n_averaged", alpha.zeros((), dtype="int64", engine=engine))

    def forward(self, *arguments: Any, **options: Any) -> Any:
        return self.module(*arguments, **options)

    def update_parameters(self, model: Net) -> None:
        """Updates the average by the network's parameters and buffers; ShapeError unless it is of the same shapes.

        Where a KeyboardInterrupt comes, ``n_averaged`` tells whether the update was made: it was wholly or not at all.
        """
        shapes = ({name: t.shape for name, t in net.state_dict().items()} for net in (self.module, model))
        if next(shapes) != next(shapes):
            raise ShapeError(
                "[AveragedModel.update_parameters] expected the network that the average was made of, got one with "
                "other parameters or shapes"
            )
        averaged: list[tuple[Tensor, Tensor]] = list(zip(self.module.parameters(), model.parameters(), strict=True))
        copied: list[tuple[Tensor, Tensor]] = []
        for kept, new in zip(self.module.buffers(), model.buffers(), strict=True):
            (averaged if self.use_buffers and is_float(kept.dtype) else copied).append((kept, new))
        seen = int(self.n_averaged)
        with alpha.no_grad():
            values: list[tuple[Tensor, Callable[[], Tensor]]] = [
                (kept, partial(_like, kept, new)) for kept, new in copied
            ]
            values = [*(self._averages(averaged, seen) if seen else _copies(averaged)), *values]
            Rewriting([*values, (self.n_averaged, lambda: self.n_averaged + 1)]).make()

    def _averages(self, pairs: list[tuple[Tensor, Tensor]], seen: int) -> list[tuple[Tensor, Callable[[], Tensor]]]:
        """Averages, each with the function that computes its next value."""
        if self.multi_avg_fn is None:
            average = self.avg_fn or get_swa_avg_fn()
            return [(mine, partial(_next, average, mine, theirs, seen)) for mine, theirs in pairs]
        found = [mine.detach().clone() for mine, _ in pairs]
        if found:
            self.multi_avg_fn(found, [_like(mine, theirs) for mine, theirs in pairs], seen)
        return _copies([(mine, new) for (mine, _), new in zip(pairs, found, strict=True)])


def _copies(pairs: Iterable[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Callable[[], Tensor]]]:
    return [(mine, partial(_like, mine, theirs)) for mine, theirs in pairs]


def _next(average: Average, mine: Tensor, theirs: Tensor, seen: int) -> Tensor:
    found = average(mine.detach(), _like(mine, theirs), seen)
    if not isinstance(found, Tensor) or found.shape != mine.shape:
        raise ArgumentError(
            f"[AveragedModel] expected avg_fn to return a tensor of shape {mine.shape}, got {described(found)}"
        )
    return _like(mine, found)


def _like(average: Tensor, tensor: Tensor) -> Tensor:
    """A network's tensor on the average's engine and in its dtype."""
    source = tensor.detach()
    if source.engine is not average.engine or source.dtype != average.dtype:
        source = source.to(average.engine).astype(average.dtype)
    return source


# -- how to average ----------------------------------------------------------------------------------------------------


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """A function of an exponential moving average for ``AveragedModel``: decay a + (1 - decay) p."""
    return partial(_ema_update, checked_decay("get_ema_avg_fn", decay))


def get_swa_avg_fn() -> Average:
    """A function of the mean of all networks for ``AveragedModel``: a + (p - a) / (n + 1)."""
    return _swa_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """``get_ema_avg_fn`` for lists of averages and tensors, which writes into the averages."""
    return partial(_update_all, get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Averages:
    """``get_swa_avg_fn`` for lists of averages and tensors, which writes into the averages."""
    return partial(_update_all, _swa_update)


def _ema_update(decay: float, average: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
    return average * decay + current * (1 - decay)


def _swa_update(average: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
    found: Tensor = average + (current - average) / (num_averaged + 1)
    return found


@alpha.no_grad()
def _update_all(update: Average, averages: Sequence[Tensor], currents: Sequence[Tensor], num_averaged: Any) -> None:
    for average, current in zip(averages, currents, strict=True):
        average.copy_(update(average, current, num_averaged))


def checked_decay(name: str, decay: Any) -> float:
    """A decay in 0..1; ArgumentError for anything else."""
    found = number(name, "decay", decay)
    if not 0 <= found <= 1:
        raise ArgumentError(f"[{name}] expected decay in 0..1, got {found}")
    return found


# -- around an average -------------------------------------------------------------------------------------------------


@alpha.no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes BatchNorm's running statistics anew, as means over a loader's batches, for averaged weights.

    Args:
        loader: gives batches, or tuples or lists whose first entry is one.
        model: the network, which is run on each batch in training mode.
        device: where batches are moved to; None leaves them.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"[update_bn] expected a Module, got {described(model)}")
    if isinstance(loader, str | bytes | Tensor) or not isinstance(loader, Iterable):
        raise ArgumentError(f"[update_bn] expected a loader of batches, got {described(loader)}")
    momenta = {layer: layer.momentum for layer in model.modules() if isinstance(layer, BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    try:
        model.train()
        for layer in momenta:
            layer.reset_running_stats()
            layer.momentum = None
        for batch in loader:
            given = batch[0] if isinstance(batch, list | tuple) else batch
            model(given if device is None else given.to(device))
    finally:
        for layer, momentum in momenta.items():
            layer.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """From each group's rate to ``swa_lr`` in ``anneal_epochs`` steps, where it stays.

    Izmailov et al., arXiv 1803.05407.

    Args:
        swa_lr: the last rate: one, or one per group.
        anneal_strategy: "cos" or "linear".
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        check_optimizer("SWALR", optimizer)
        self.swa_lrs = per_group("SWALR", "swa_lr", swa_lr, len(optimizer.param_groups))
        self.anneal_epochs = count("SWALR", "anneal_epochs", anneal_epochs, least=0)
        self.anneal_strategy = choice(anneal_strategy, ("cos", "linear"), "anneal_strategy", "SWALR")
        super().__init__(optimizer, last_epoch)

    def _share(self, step: float) -> float:
        """How far a step is from the first rate to the last."""
        if self.anneal_epochs == 0:
            return float(step > 0)
        done = min(1.0, max(0.0, step / self.anneal_epochs))
        return done if self.anneal_strategy == "linear" else cosine(0.0, 1.0, done)

    def rate(self, base: float, group: int, step: float) -> float:
        share = self._share(step)
        return self.swa_lrs[group] * share + base * (1 - share)

    def begun(self, rates: Sequence[float], step: float) -> list[float]:
        return self.moved(rates, max(1, step) if self.anneal_epochs == 0 else step)

    def moved(self, rates: Sequence[float], step: float) -> list[float]:
        before, share = self._share(step - 1), self._share(step)
        first = [
            last if before == 1 else (rate - before * last) / (1 - before)
            for rate, last in zip(rates, self.swa_lrs, strict=True)
        ]
        return [last * share + rate * (1 - share) for rate, last in zip(first, self.swa_lrs, strict=True)]
