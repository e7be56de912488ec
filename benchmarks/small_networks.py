"""Small networks, in which the calls of Python take as long as the work: ours, and PyTorch's with the same weights."""

from __future__ import annotations

from typing import Any

INPUTS: dict[str, tuple[int, ...]] = {"mlp": (784,), "lenet": (28, 28, 1)}
"""By name the shape of a sample; there are ten classes."""

CLASSES = 10


def ours(name: str) -> Any:
    """The network here."""
    from alpha import nn

    net = _made(name, nn, nn.Sequential)
    if name == "lenet":
        net.flattened_maps = {"7": (5, 5)}  # what the first linear layer sees, for PyTorch's order of its weights
    return net


def theirs(name: str) -> Any:
    """The network in PyTorch."""
    import torch

    return _made(name, torch.nn, torch.nn.Sequential)


def _made(name: str, nn: Any, sequential: Any) -> Any:
    if name == "mlp":
        return sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    return sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )  # fmt: skip
