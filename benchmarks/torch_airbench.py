"""The fast recipe in PyTorch, as examples/recipes.py has it: network, Muon, rates and views; oracle and opponent.

Names are ours, so that weights carry both ways as for ``benchmarks.torch_models``. Where PyTorch's Muon computes its
iteration in bfloat16, this one takes the parameter's dtype.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    raise ImportError(
        '[torch_airbench] expected PyTorch to compare with, got none: pip install "dragon-alpha[compare]"'
    ) from error

LABEL_SMOOTHING = 0.2
FILTER_LR, BIAS_LR, HEAD_LR, DECAY = 0.24, 0.053, 8.3e-4, 2e-6
WHITENING_EPOCHS = 3

Casts = Callable[[], AbstractContextManager[object]]


class Block(nn.Module):
    """Two 3x3 convolutions, the first max-pooled."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = _norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = _norm(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, inputs, H, W) to (N, outputs, H // 2, W // 2)."""
        x = functional.gelu(self.bn1(functional.max_pool2d(self.conv1(x), 2)))
        return functional.gelu(self.bn2(self.conv2(x)))


class Airbench(nn.Module):
    """Images (N, 3, 32, 32) to logits (N, num_classes)."""

    def __init__(self, num_classes: int = 10, base_width: int = 64) -> None:
        super().__init__()
        self.whitening = nn.Conv2d(3, 24, 2)
        self.whitening.weight.requires_grad_(False)
        self.block1 = Block(24, base_width)
        self.block2 = Block(base_width, 4 * base_width)
        self.block3 = Block(4 * base_width, 4 * base_width)
        self.fc = nn.Linear(4 * base_width, num_classes, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) to (N, num_classes)."""
        x = self.block3(self.block2(self.block1(functional.gelu(self.whitening(x)))))
        logits: torch.Tensor = self.fc(functional.max_pool2d(x, 3).flatten(1)) / 9
        return logits


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal, for filters, which are scaled to norm sqrt(OC) before each step."""

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0.6) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step of all parameters."""
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                buffer = state.setdefault("momentum_buffer", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalised(p.grad.lerp(buffer, group["momentum"]).flatten(1))
                p.mul_(len(p) ** 0.5 / p.norm())
                p.add_(update.view_as(p), alpha=-group["lr"] * max(1.0, len(p) / update.shape[1]) ** 0.5)


def orthogonalised(x: torch.Tensor) -> torch.Tensor:
    """Three quintic Newton-Schulz iterations."""
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(3):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.T if tall else x


class Training:
    """A network's training step by step, in epochs of so many batches.

    ``casts``: makes a block in which the loss is computed.
    """

    def __init__(
        self, net: Airbench, batch_size: int, batches: int, epochs: int = 8, casts: Casts = contextlib.nullcontext
    ) -> None:
        self.net, self.casts = net, casts
        trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
        self.muon = Muon([p for p in trained.values() if p.ndim == 4], FILTER_LR)
        whitening = trained.pop("whitening.bias")
        biases, heads = ([p for p in trained.values() if p.ndim == axes] for axes in (1, 2))
        groups = [
            {"params": params, "lr": lr * batch_size, "weight_decay": DECAY / lr}
            for params, lr in (([whitening], BIAS_LR), (biases, BIAS_LR), (heads, HEAD_LR))
        ]
        self.sgd = torch.optim.SGD(groups, momentum=0.85, nesterov=True)
        steps, whitening_steps = epochs * batches, min(WHITENING_EPOCHS, epochs) * batches
        falling = lambda step: max(0.0, 1 - step / steps)  # noqa: E731
        first = lambda step: max(0.0, 1 - step / whitening_steps)  # noqa: E731
        self.schedules = [
            torch.optim.lr_scheduler.LambdaLR(self.muon, falling),
            torch.optim.lr_scheduler.LambdaLR(self.sgd, [first, falling, falling]),
        ]

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Forward, backward and update; the loss. Where a rate has fallen to 0, no gradient is computed any more."""
        for p in [p for group in self.sgd.param_groups if group["lr"] == 0 for p in group["params"]]:
            p.requires_grad_(False)
        with self.casts():
            loss = functional.cross_entropy(self.net(x), y, label_smoothing=LABEL_SMOOTHING)
        for optimizer in (self.muon, self.sgd):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (self.muon, self.sgd):
            optimizer.step()
        for schedule in self.schedules:
            schedule.step()
        return loss.detach()


@torch.no_grad()
def averaged_views(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The mean of six views, as ``nn.AveragedViews``."""

    def sides(x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = (net(x) + net(x.flip(3))) / 2
        return logits

    height, width = x.shape[2:]
    padded = functional.pad(x, (1, 1, 1, 1), "reflect")
    return sides(x) / 2 + (sides(padded[..., :height, :width]) + sides(padded[..., 2:, 2:])) / 4


def _norm(channels: int) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    layer.weight.requires_grad_(False)
    return layer
