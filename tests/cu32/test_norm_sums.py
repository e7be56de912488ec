"""The sum of two BatchNorms in one pass: the results of two, in eager and captured training, and all gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.cu32 import normalisation
from alpha.cu32.base import DeviceEngine
from alpha.cu32.norm_sums import NormSumOperations
from alpha.functions.norm import batch_norm_sum
from alpha.models.resnet import Bottleneck
from alpha.nn import functional as F
from alpha.nn.models.resnet import BasicBlock
from alpha.nn.shortcuts import Unnormalised, conv_bn_shortcut, shortcut_of
from alpha.records import RunningStatistics, ToNormalise
from alpha.testing import gradcheck, gradgradcheck

SLOPES = [None, 0.0, 0.2, 1.0]
SHAPES = [(3, 4, 5, 8), (7, 3, 1, 3), (2, 1, 1, 5), (33, 5, 6, 12)]


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors too take the way of large ones."""
    monkeypatch.setattr(normalisation, "REMADE_FROM", 0)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, has two BatchNorms summed as they would be without this."""
    return lambda: monkeypatch.setattr(NormSumOperations, "sums_batch_norms", lambda self, x: False)


class Terms:
    """Two tensors of a shape, with weights, biases and running statistics of their own."""

    def __init__(self, engine: DeviceEngine, shape: tuple[int, ...], dtype: Any, affine: bool = True) -> None:
        rng = np.random.default_rng(3)

        def vector() -> Any:
            return engine.from_numpy(rng.standard_normal(shape[-1]).astype(dtype)).requires_grad_()

        self.x, self.other = (
            engine.from_numpy((5 * rng.standard_normal(shape) + shift).astype(dtype)).requires_grad_()
            for shift in (30, -2)
        )
        self.vectors = [vector() if affine else None for _ in range(4)]
        self.running = [
            RunningStatistics(
                *[engine.from_numpy(rng.uniform(0.5, 1, shape[-1]).astype(dtype)) for _ in range(2)],
                0.3,
                engine.from_numpy(np.array(4)),
            )
            for _ in range(2)
        ]

    @property
    def tensors(self) -> list[Any]:
        return [x for x in (self.x, self.other, *self.vectors) if x is not None]

    def at_once(self, slope: float | None) -> Any:
        weight, bias, other_weight, other_bias = self.vectors
        first = ToNormalise(self.x, weight, bias, self.running[0], 1e-3)
        return batch_norm_sum(first, ToNormalise(self.other, other_weight, other_bias, self.running[1], 1e-5), slope)

    def in_turn(self, slope: float | None) -> Any:
        weight, bias, other_weight, other_bias = self.vectors
        how = {} if slope is None else {"activation": "leaky_relu", "negative_slope": slope}
        results = None
        for x, w, b, running, eps, given in (
            (self.other, other_weight, other_bias, self.running[1], 1e-5, {}),
            (self.x, weight, bias, self.running[0], 1e-3, how),
        ):
            results = F.batch_norm(
                x, running.mean, running.var, w, b, True, running.momentum, eps, results,
                num_batches_tracked=running.batches, **given,
            )  # fmt: skip
        return results

    def state(self) -> list[Any]:
        return [value.numpy() for one in self.running for value in (one.mean, one.var, one.batches)]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_sum_of_two(cu32: DeviceEngine, shape: Any, dtype: str, slope: float | None, affine: bool) -> None:
    """The result and the statistics have the bits; gradients are sums in another order."""
    ours, theirs = (Terms(cu32, shape, dtype, affine) for _ in range(2))
    y, expected = ours.at_once(slope), theirs.in_turn(slope)
    np.testing.assert_array_equal(y.detach().numpy(), expected.detach().numpy())
    for found, right in zip(ours.state(), theirs.state(), strict=True):
        np.testing.assert_array_equal(found, right)
    dy = cu32.from_numpy(np.random.default_rng(5).standard_normal(shape).astype(dtype))
    y.backward(dy)
    expected.backward(dy)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for one, two in zip(ours.tensors, theirs.tensors, strict=True):
        right = two.grad.numpy()
        np.testing.assert_allclose(one.grad.numpy(), right, rtol=tolerance, atol=tolerance * np.abs(right).max())


@pytest.mark.parametrize("slope", [None, 0.2])
def test_first_and_second_gradients(cu32: DeviceEngine, slope: float | None) -> None:
    terms = Terms(cu32, (3, 2, 2, 4), np.float64)
    running = RunningStatistics(None, None, 0.0, None)

    def function(x: Any, other: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        return batch_norm_sum(ToNormalise(x, w, b, running, 1e-3), ToNormalise(other, v, c, running, 1e-2), slope)

    assert gradcheck(function, *terms.tensors)
    assert gradgradcheck(function, *terms.tensors)


def test_terms_in_other_memory_orders_and_repeated_backwards(cu32: DeviceEngine) -> None:
    ours, theirs = (Terms(cu32, (3, 4, 5, 8), "float32") for _ in range(2))
    for one in (ours, theirs):
        one.other = one.other.detach().permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1).requires_grad_()
    y, expected = ours.at_once(0.1), theirs.in_turn(0.1)
    dy = cu32.from_numpy(np.random.default_rng(5).standard_normal((3, 8, 4, 5)).astype(np.float32)).permute(0, 2, 3, 1)
    for _ in range(2):  # nothing that the second one reads was written over
        y.backward(dy, retain_graph=True)
        expected.backward(dy, retain_graph=True)
    for one, two in zip(ours.tensors, theirs.tensors, strict=True):
        np.testing.assert_allclose(one.grad.numpy(), two.grad.numpy(), rtol=1e-4, atol=1e-5)


def trained(cu32: DeviceEngine, make: Callable[[], Any], wrap: Callable[[Any], Any]) -> list[Any]:
    """Losses of some steps, and weights and buffers after them."""
    alpha.manual_seed(1)
    net = make().to(cu32).train()
    optimizer = optim.SGD(net.parameters(), lr=0.02, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step, rng = wrap(step), np.random.default_rng(4)
    losses = []
    for _ in range(5):
        x, y = rng.standard_normal((4, 7, 6, 3)).astype(np.float32), rng.integers(0, 5, 4)
        losses.append(step(alpha.tensor(x, engine=cu32), alpha.tensor(y, engine=cu32)).detach().numpy())
    return [*losses, *[value.numpy() for value in net.state_dict().values()]]


def network(*blocks: nn.Module) -> nn.Module:
    """Two blocks whose shortcuts have a convolution and a BatchNorm, and a head."""
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


def bottleneck(inputs: int) -> nn.Module:
    shortcut = nn.Sequential(nn.Conv2d(inputs, 8, 1, 2, bias=False), nn.BatchNorm2d(8))
    return Bottleneck(inputs, 2, 2, shortcut)


NETWORKS: dict[str, Callable[[], Any]] = {
    "paper": lambda: network(BasicBlock(3, 6, 2, "leaky_relu", 3), BasicBlock(6, 8, 1, "leaky_relu", 3)),
    "recomputing": lambda: network(*[BasicBlock(n, m, 2, "relu", 1, True) for n, m in ((3, 6), (6, 8))]),
    "bottlenecks": lambda: network(bottleneck(3), bottleneck(8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_train_as_with_two(cu32: DeviceEngine, apart: Callable[[], None], name: str) -> None:
    eager = trained(cu32, NETWORKS[name], lambda step: step)
    for one, two in zip(eager, trained(cu32, NETWORKS[name], alpha.graph), strict=True):
        np.testing.assert_array_equal(one, two)
    apart()
    for one, two in zip(eager, trained(cu32, NETWORKS[name], lambda step: step), strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_shortcuts_take_fewer_launches(cu32: DeviceEngine, apart: Callable[[], None], name: str) -> None:
    net = NETWORKS[name]().to(cu32).train()
    x = cu32.from_numpy(np.random.default_rng(0).standard_normal((2, 7, 6, 3)).astype(np.float32))

    def launches() -> int:
        for _ in range(2):
            before = cu32.device.launches
            net(x).sum().backward()
        return cu32.device.launches - before

    found = launches()
    apart()
    assert found <= launches() - 3 * 2


def test_what_is_not_plain_is_called(cu32: DeviceEngine) -> None:
    """A hook, a subclass, evaluation, statistics that are averages: all as without a common pass."""
    x = cu32.from_numpy(np.random.default_rng(0).standard_normal((3, 4, 4, 4)).astype(np.float32))
    bn = nn.BatchNorm2d(6).to(cu32).train()

    def shortcut(norm: Any = None) -> Any:
        return nn.Sequential(nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6) if norm is None else norm).to(cu32).train()

    class Derived(nn.BatchNorm2d):
        pass

    assert isinstance(shortcut_of(shortcut(), bn, x), Unnormalised)
    assert shortcut_of(None, bn, x) is x
    hooked, calls = shortcut(), []
    hooked.register_forward_hook(lambda *_: calls.append(1))
    inner = shortcut()
    inner[1].register_forward_hook(lambda *_: calls.append(2))
    for module in (
        hooked,
        inner,
        shortcut(Derived(6)),
        shortcut(nn.GroupNorm(2, 6)),
        nn.Sequential(nn.Conv2d(4, 6, 1)),
    ):
        assert isinstance(shortcut_of(module.to(cu32), bn, x), alpha.Tensor)
    assert calls == [1, 2]
    with alpha.no_grad():
        assert isinstance(shortcut_of(shortcut(), bn, x), alpha.Tensor)
    conv = nn.Conv2d(4, 6, 3, padding=1).to(cu32)
    for change in (lambda norm: norm.eval(), lambda norm: setattr(norm, "momentum", None)):
        module = shortcut()
        change(module[1])
        expected = F.relu(bn(conv(x)) + module(x))
        given = shortcut_of(module, bn, x)
        found = conv_bn_shortcut(conv, bn, x, given, "relu")
        assert isinstance(given, Unnormalised)
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
