"""SENet50 against the same network in PyTorch: values, gradients, numbers of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError
from tests.engine.checks import sized


def count(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def twin(net: nn.models.SENet) -> Any:
    """The network's forward in PyTorch, written from its definition, over PyTorch's tensors of its state."""
    import torch
    import torch.nn.functional as F

    state = {
        key: value.double().requires_grad_() for key, value in nn.models.to_torch(net).items() if "num_" not in key
    }

    def conv(x: Any, name: str, stride: int = 1) -> Any:
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(x: Any, name: str) -> Any:
        return F.batch_norm(x, None, None, state[f"{name}.weight"], state[f"{name}.bias"], training=True)

    def block(x: Any, name: str, stride: int) -> Any:
        y = F.leaky_relu(norm(conv(x, f"{name}.conv1"), f"{name}.bn1"))
        y = F.leaky_relu(norm(conv(y, f"{name}.conv2", stride), f"{name}.bn2"))
        y = norm(conv(y, f"{name}.conv3"), f"{name}.bn3")
        if stride == 2:
            x = F.leaky_relu(conv(x, f"{name}.downsample.0", 2))
            x = norm(conv(x, f"{name}.downsample.2"), f"{name}.downsample.3")
        factors = F.leaky_relu(conv(y.mean((2, 3), keepdim=True), f"{name}.se.1"))
        return F.leaky_relu(y * torch.sigmoid(conv(factors, f"{name}.se.3")) + x)

    def forward(x: Any) -> Any:
        x = F.leaky_relu(norm(conv(x, "conv1"), "bn1"))
        for stage, blocks in enumerate((3, 4, 6, 3), 1):
            for place in range(blocks):
                x = block(x, f"layer{stage}.{place}", 1 if place else 2)
        x = F.leaky_relu(F.linear(x.mean((2, 3)), state["fc.1.weight"], state["fc.1.bias"]))
        return F.linear(x, state["fc.4.weight"], state["fc.4.bias"])

    return forward, state


@pytest.mark.needs("torch")
def test_a_training_step(engine: Engine) -> None:
    import torch

    alpha.manual_seed(1)
    net = nn.models.senet50(num_classes=5, base_width=4, dropout=0).to(engine).double().train()
    forward, state = twin(net)
    x = np.random.default_rng(2).standard_normal((4, *sized(engine, (32, 32), (16, 16)), 3))
    y, expected = net(alpha.tensor(x, engine=engine)), forward(torch.from_numpy(x).permute(0, 3, 1, 2))
    np.testing.assert_allclose(np.asarray(y.detach()), expected.detach().numpy(), 1e-8, 1e-10)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    for key, parameter in net.named_parameters():
        found, wanted = np.asarray(parameter.grad), state[key].grad.numpy()
        wanted = np.moveaxis(wanted, 1, -1) if wanted.ndim == 4 else wanted
        assert np.abs(found - wanted).max() <= 1e-7 * np.abs(wanted).max() + 1e-10, key


def test_weights_and_arguments() -> None:
    """A convolution's weights and the two numbers of a BatchNorm2d, added up by hand for one block."""
    block = nn.models.senet.SEBlock(64, 64, 2)
    shortcut = 9 * 64 * 64 + 64 * 256 + 512
    assert count(block) == 64 * 64 + 128 + 9 * 64 * 64 + 128 + 64 * 256 + 512 + shortcut + 2 * 256 * 16
    assert nn.models.senet50(3, base_width=2, stem="7x7").eval()(alpha.zeros((1, 40, 40, 3))).shape == (1, 3)
    with pytest.raises(ArgumentError, match=r'\[senet50\] expected stem as one of "3x3", "7x7", got'):
        nn.models.senet50(stem="5x5")
