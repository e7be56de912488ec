"""DeepLabSmall: sizes, values and gradients against the same network in PyTorch, the products it keeps, misuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.cpu import explain
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Geometry
from alpha.nn.models.deeplab import ASPP
from tests.engine.checks import sized

Array = np.ndarray[Any, Any]


def twin(num_classes: int, in_channels: int = 3, base_width: int = 16, dilations: tuple[int, ...] = (6, 12, 18)) -> Any:
    """The same network in PyTorch, from its definition, with the names of ours."""
    import torch
    from torch import nn as t

    class Unit(t.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> None:
            super().__init__()
            self.conv = t.Conv2d(inputs, outputs, kernel, stride, kernel // 2 * dilation, dilation, bias=False)
            self.bn = t.BatchNorm2d(outputs)

        def forward(self, x: Any) -> Any:
            return self.bn(self.conv(x)).relu()

    class Block(t.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = t.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = t.BatchNorm2d(outputs)
            self.conv2 = t.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = t.BatchNorm2d(outputs)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                shortcut = t.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.downsample = t.Sequential(shortcut, t.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            shortcut = x if self.downsample is None else self.downsample(x)
            return (self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())) + shortcut).relu()

    class Pyramid(t.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            atrous = [Unit(width, width, 3, dilation=d) for d in dilations]
            self.branches = t.Sequential(Unit(width, width, 1), *atrous)
            self.pooled = Unit(width, width, 1)
            self.project = Unit((len(dilations) + 2) * width, width, 1)

        def forward(self, x: Any) -> Any:
            mean = self.pooled(t.functional.adaptive_avg_pool2d(x, 1))
            mean = t.functional.interpolate(mean, x.shape[2:], mode="bilinear")
            return self.project(torch.cat([*(branch(x) for branch in self.branches), mean], 1))

    class Network(t.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            w = base_width
            self.stem = Unit(in_channels, w, 3, 2)
            sizes = [(w, w, 1), (w, 2 * w, 2), (2 * w, 4 * w, 1), (4 * w, 4 * w, 1)]
            self.blocks = t.Sequential(*(Block(*size) for size in sizes))
            self.aspp = Pyramid(4 * w)
            self.classifier = t.Conv2d(4 * w, num_classes, 1)

        def forward(self, x: Any) -> Any:
            logits = self.classifier(self.aspp(self.blocks(self.stem(x))))
            return t.functional.interpolate(logits, x.shape[2:], mode="bilinear")

    return Network()


def close(name: str, actual: Any, expected: Array) -> None:
    """Within 1e-9 of the tensor's largest value; 1e-13 for those that are 0 but for rounding."""
    limit = 1e-9 * np.abs(expected).max() + 1e-13
    assert actual is not None and np.abs(np.asarray(actual) - expected).max() <= limit, name


def channels_first(x: Array) -> Any:
    import torch

    return torch.from_numpy(x.transpose(0, 3, 1, 2).copy())


CASES: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((32, 32), {}),
    ((21, 38), {"in_channels": 1}),
    ((7, 5), {"dilations": (1, 2)}),
    ((1, 1), {}),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("size", "options"), CASES)
def test_loss_gradients_and_statistics_are_pytorchs(
    engine: Engine, rng: np.random.Generator, size: tuple[int, int], options: dict[str, Any]
) -> None:
    """float64, so that both differ by rounding of about 1e-16 per step alone, through 14 layers.

    BatchNorm over few values enlarges that where they lie close together: hence enough images, and drawn the same.
    """
    import torch

    alpha.manual_seed(0)
    if max(size) > 20:
        size = sized(engine, size, (10, 13))
    ours = nn.models.deeplab_small(5, base_width=2, **options).to(engine).to(alpha.float64)
    theirs = twin(5, base_width=2, **options).double()
    theirs.load_state_dict(nn.models.to_torch(ours))
    x, labels = rng.normal(size=(6, *size, options.get("in_channels", 3))), rng.integers(0, 5, (6, *size))
    x_ours, other = alpha.tensor(x, engine=engine, requires_grad=True), channels_first(x).requires_grad_()
    logits, expected_logits = ours(x_ours), theirs(other)
    assert logits.shape == (6, *size, 5)
    close("logits", logits.detach(), expected_logits.detach().numpy().transpose(0, 2, 3, 1))
    loss = nn.functional.cross_entropy(logits, alpha.tensor(labels, engine=engine))
    expected = torch.nn.functional.cross_entropy(expected_logits, torch.from_numpy(labels))
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    close("input", x_ours.grad, other.grad.numpy().transpose(0, 2, 3, 1))
    gradients = nn.models.from_torch({key: p.grad for key, p in theirs.named_parameters()})
    for key, parameter in ours.named_parameters():
        close(key, parameter.grad, gradients[key])
    state = nn.models.from_torch(theirs.state_dict(), ours)
    for key, buffer in ours.named_buffers():
        close(key, buffer, state[key])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("size", [(13, 18), (4, 4), (1, 1)])
def test_evaluation_of_one_image_is_pytorchs(engine: Engine, rng: np.random.Generator, size: tuple[int, int]) -> None:
    import torch

    theirs = twin(3, base_width=2).double().eval()
    for module in theirs.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # other statistics than the initial ones
            module.running_mean.copy_(torch.from_numpy(rng.normal(0, 0.1, module.num_features)))
            module.running_var.copy_(torch.from_numpy(rng.uniform(0.5, 1.5, module.num_features)))
    ours = nn.models.deeplab_small(3, base_width=2).to(engine).to(alpha.float64).eval()
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    x = rng.normal(size=(1, *size, 3))
    with alpha.no_grad():
        result = ours(alpha.tensor(x, engine=engine))
    close("logits", result, theirs(channels_first(x)).detach().numpy().transpose(0, 2, 3, 1))


def test_sizes() -> None:
    net = nn.models.deeplab_small(11)
    assert sum(parameter.numel() for parameter in net.parameters()) == 292_123
    assert "at 11 classes it has 292,123 parameters" in (nn.models.deeplab_small.__doc__ or "")
    assert net.aspp.dilations == (6, 12, 18) and "dilations=(6, 12, 18)" in repr(net)


def test_the_docstrings_shares_are_those_of_the_geometry(cpu: CPUEngine) -> None:
    rows = re.findall(r"(\d+) x \1 +(\d+) % +(\d+) % +(\d+) %", ASPP.__doc__ or "")
    assert len(rows) == 4
    for side, *shares in (map(int, row) for row in rows):
        for dilation, share in zip((6, 12, 18), shares, strict=True):
            geometry = Geometry.make((side, side), (3, 3), (1, 1), (dilation, dilation), (dilation, dilation))
            assert round(100 * geometry.useful / geometry.nominal) == share
            told = str(explain(cpu, "forward", (2, side, side, 8), (8, 3, 3, 8), 1, dilation, dilation))
            assert f"({share}%)" in told


def test_no_tap_outside_is_multiplied(engine: Engine, rng: np.random.Generator) -> None:
    """Where a dilation is as large as the map only the centre counts: NaN in the other taps goes nowhere."""
    conv = nn.Conv2d(3, 4, 3, padding=6, dilation=6, bias=False).to(engine)
    weight = np.full((4, 3, 3, 3), np.nan, np.float32)
    weight[:, 1, 1] = rng.normal(size=(4, 3))
    conv.load_state_dict({"weight": weight})
    x = rng.normal(size=(2, 6, 5, 3)).astype(np.float32)
    with alpha.no_grad():
        result = conv(alpha.tensor(x, engine=engine)).numpy()
    # Three products and two sums, each rounded by 6e-8 of values below 20.
    np.testing.assert_allclose(result, x @ weight[:, 1, 1].T, rtol=0, atol=4e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "[deeplab_small] expected num_classes as an integer >= 1, got 0"),
        ((2, 0), "[deeplab_small] expected in_channels as an integer >= 1, got 0"),
        ((2, 3, 1.5), "[deeplab_small] expected base_width as an integer >= 1, got 1.5"),
        ((2, 3, 2, ()), "[ASPP] expected dilations as a list of at least one, got ()"),
        ((2, 3, 2, 6), "[ASPP] expected dilations as a list of at least one, got 6"),
        ((2, 3, 2, (6, 0)), "[ASPP] expected dilations as an integer >= 1, got 0"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        nn.models.deeplab_small(*arguments)
    assert str(caught.value) == message


def test_wrong_images(engine: Engine) -> None:
    net = nn.models.deeplab_small(2, base_width=2).to(engine)
    with pytest.raises(ShapeError, match=r"\[conv2d\] expected x.shape\[3\] == w.shape\[3\] \(input channels\)"):
        net(alpha.zeros((2, 8, 8, 1), engine=engine))
    with pytest.raises(ShapeError, match=r"\[conv2d\] expected images \(N, H, W, C\)"):
        net(alpha.zeros((8, 3), engine=engine))
    with pytest.raises(ShapeError, match=r"\[batch_norm\] expected more than 1 value"):
        net.train()(alpha.zeros((1, 8, 8, 3), engine=engine))  # the map's mean is one value per channel
