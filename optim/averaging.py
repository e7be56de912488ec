"""AveragedModel: a network whose weights are the running average of another's, which often tests better."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import alpha
from alpha.arguments import flag, number
from alpha.changes import Rewriting
from alpha.dtypes import is_float
from alpha.errors import ArgumentError, ShapeError, described
from alpha.nn.module import Module
from alpha.tensor import Tensor

Net = TypeVar("Net", bound=Module)


class AveragedModel(Module, Generic[Net]):
    """An exponential moving average of a network: a = decay a + (1 - decay) p for every parameter p.

    Call ``update_parameters(model)`` after each ``optimizer.step()``; the first call copies. In evaluation the average
    is called as the network is. Polyak & Juditsky, 1992; PyTorch's ``AveragedModel`` with ``get_ema_multi_avg_fn``.

    Args:
        model: the network; the average begins as a copy of it that needs no gradients.
        decay: share of the average that stays in an update, 0..1.
        use_buffers: whether floating-point buffers (BatchNorm's statistics) are averaged too; else they are copied.

    Attributes:
        module: the averaged network.
        n_averaged: int64 buffer, the number of updates.
    """

    n_averaged: Tensor

    def __init__(self, model: Net, decay: float = 0.999, use_buffers: bool = False) -> None:
        super().__init__()
        if not isinstance(model, Module):
            raise ArgumentError(f"[AveragedModel] expected a Module, got {described(model)}")
        decay, use_buffers = number("AveragedModel", "decay", decay), flag("AveragedModel", "use_buffers", use_buffers)
        if not 0 <= decay <= 1:
            raise ArgumentError(f"[AveragedModel] expected decay in 0..1, got {decay}")
        self.decay, self.use_buffers = decay, use_buffers
        self.module: Net = copy.deepcopy(model)
        self.module.requires_grad_(False)
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
        share = 0.0 if int(self.n_averaged) == 0 else self.decay
        with alpha.no_grad():
            values: list[tuple[Tensor, Callable[[], Tensor]]] = [
                (mine, partial(_average, mine, theirs, share))
                for mine, theirs in zip(self.module.parameters(), model.parameters(), strict=True)
            ]
            for kept, new in zip(self.module.buffers(), model.buffers(), strict=True):
                part = share if self.use_buffers and is_float(kept.dtype) else 0.0
                values.append((kept, partial(_average, kept, new, part)))
            Rewriting([*values, (self.n_averaged, lambda: self.n_averaged + 1)]).make()


def _average(average: Tensor, tensor: Tensor, share: float) -> Tensor:
    """The next value of an average."""
    source = tensor.detach()
    if source.engine is not average.engine or source.dtype != average.dtype:
        source = source.to(average.engine).astype(average.dtype)
    return source if share == 0 else average.detach() * share + source * (1 - share)
