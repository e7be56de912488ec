"""AveragedModel: a network whose weights are the exponential moving average of another's, which often tests better."""

from __future__ import annotations

from alpha.optim import swa_utils
from alpha.optim.swa_utils import Net, checked_decay, get_ema_avg_fn


class AveragedModel(swa_utils.AveragedModel[Net]):
    """An exponential moving average of a network: a = decay a + (1 - decay) p for every parameter p.

    Call ``update_parameters(model)`` after each ``optimizer.step()``; the first call copies. In evaluation the average
    is called as the network is. Polyak & Juditsky, 1992. ``swa_utils.AveragedModel`` has PyTorch's arguments.

    Args:
        model: the network; the average begins as a copy of it that needs no gradients.
        decay: share of the average that stays in an update, 0..1.
        use_buffers: whether floating-point buffers (BatchNorm's statistics) are averaged too; else they are copied.

    Attributes:
        module: the averaged network.
        n_averaged: int64 buffer, the number of updates.
    """

    def __init__(self, model: Net, decay: float = 0.999, use_buffers: bool = False) -> None:
        kept = checked_decay("AveragedModel", decay)
        super().__init__(model, avg_fn=get_ema_avg_fn(kept), use_buffers=use_buffers)
        self.decay = kept
