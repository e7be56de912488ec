"""Operator fusion for inference: values beside the layers one by one, and never a stale filter or a layer left out."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.engine import Engine
from alpha.nn import fusion
from tests.tiers import FLOATS

# Folding rounds each filter and bias some three times more: 2^-24 each, beside the bound of the convolution itself.
BOUND = 5e-6
EXACT = 1e-12


def drawn(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with every BatchNorm's four vectors away from 1 and 0."""
    alpha.manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor, low, high in (
                (part.weight, -1.5, 1.5),
                (part.bias, -1, 1),
                (part.running_mean, -1, 1),
                (part.running_var, 0.1, 2),
            ):
                if tensor is not None:
                    nn.init.uniform_(tensor, low, high)
    return module


def block(engine: Engine, **options: Any) -> nn.Sequential:
    """A convolution, its BatchNorm, an activation."""
    net = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1, **options), nn.BatchNorm2d(5), nn.LeakyReLU(0.1))
    drawn(net).to(engine).eval()
    return net


def images(engine: Engine, *shape: int, dtype: Any = np.float32) -> alpha.Tensor:
    rng = np.random.default_rng(1)
    return alpha.tensor(rng.standard_normal(shape or (2, 6, 5, 3)).astype(dtype), engine=engine)


def by_layers(net: nn.Module, x: alpha.Tensor) -> np.ndarray[Any, Any]:
    """The result with gradients recorded, where each layer runs on its own."""
    with alpha.enable_grad():
        return np.array(net(x).detach())


def relative(actual: alpha.Tensor, expected: np.ndarray[Any, Any]) -> float:
    return float(np.abs(np.asarray(actual) - expected).max() / np.abs(expected).max())


def kept(net: Any) -> Any:
    """What is kept of the first layer's filters, folded."""
    return net[0].weight.storage.cache.get("folded")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the layers' own forwards, as they are called."""
    seen: list[str] = []

    def note(kind: type[nn.Module]) -> None:
        inner = kind.forward

        def forward(self: nn.Module, *args: Any, **options: Any) -> Any:
            seen.append(type(self).__name__)
            return inner(self, *args, **options)

        monkeypatch.setattr(kind, "forward", forward)
        monkeypatch.setitem(fusion._FORWARDS, kind, forward)

    for kind in (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.LeakyReLU):
        note(kind)
    return seen


# -- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_values(engine: Engine, dtype: Any, bias: bool, affine: bool) -> None:
    """Against float64 from the definitions."""
    net = nn.Sequential(nn.Conv2d(3, 5, 3, bias=bias), nn.BatchNorm2d(5, eps=0.01, affine=affine), nn.ReLU())
    drawn(net).to(engine).to(np.dtype(dtype)).eval()
    x = images(engine, dtype=dtype)
    expected = by_layers(net, x)
    with alpha.no_grad():
        first, second = net(x), net(x)
    bound = BOUND if dtype == np.float32 else EXACT
    assert relative(first, expected) <= bound
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    assert (np.asarray(first) >= 0).all()


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)],
        lambda: [nn.Conv2d(3, 5, 3), nn.ReLU(), nn.BatchNorm2d(5), nn.Conv2d(5, 4, 1), nn.LeakyReLU(0.3)],
        lambda: [nn.Conv2d(3, 3, 3, groups=3), nn.BatchNorm2d(3), nn.Sigmoid()],
        lambda: [nn.Conv2d(3, 5, 3, 2, 1, 2), nn.BatchNorm2d(5), nn.LeakyReLU(-0.5), nn.BatchNorm2d(5)],
        lambda: [nn.BatchNorm2d(3), nn.Conv2d(3, 5, 1)],
        lambda: [nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, track_running_stats=False), nn.ReLU()],
        lambda: [nn.Conv2d(3, 5, 3), nn.Sequential(nn.BatchNorm2d(5), nn.ReLU())],
    ],
)
def test_chains(engine: Engine, layers: Callable[[], list[nn.Module]]) -> None:
    net = drawn(nn.Sequential(*layers())).to(engine).eval()
    x = images(engine)
    expected = by_layers(net, x)
    with alpha.no_grad():
        assert relative(net(x), expected) <= BOUND


def test_networks(engine: Engine) -> None:
    small = images(engine, 1, 32, 32, 3)
    for net in (
        nn.models.resnet18(7, base_width=4),
        nn.models.resnet18(7, style="torchvision", base_width=4),
        nn.models.vgg16(7, base_width=4),
    ):
        drawn(net).to(engine).eval()
        expected = by_layers(net, small)
        with alpha.no_grad():
            # Twenty layers, each within the bound of what it gets.
            assert relative(net(small), expected) <= 20 * BOUND


def test_a_row_is_one_convolution(engine: Engine, calls: list[str]) -> None:
    net = nn.Sequential(block(engine), nn.Conv2d(5, 2, 1), nn.ReLU()).to(engine).eval()
    with alpha.no_grad():
        net(images(engine))
    assert calls == []
    net(images(engine))
    assert calls == ["Conv2d", "BatchNorm2d", "Conv2d", "ReLU"]


@pytest.mark.parametrize(
    "activation",
    [
        nn.ReLU(inplace=True),
        nn.LeakyReLU(0.2),
        nn.LeakyReLU(-0.5),
        nn.SiLU(inplace=True),
        nn.Hardswish(inplace=True),
        nn.ReLU6(inplace=True),
        nn.Mish(inplace=True),
        nn.Tanh(),
    ],
)
def test_training_gives_the_same_bits(engine: Engine, activation: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm2d and an activation in a row, or with a convolution, beside the layers called one by one.

    Its sums are taken in passes of their own: where convolutions take them, as tests/cu32/test_norm_convolutions.py
    tries, they are added in another order.
    """
    monkeypatch.setattr(type(engine), "measures_convolutions", lambda self, x: False)
    conv, bn = drawn(nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5))).to(engine)
    found = []
    for forward in (
        lambda x: activation(bn(conv(x))),
        nn.Sequential(conv, bn, activation),
        lambda x: fusion.conv_bn_activation(conv, bn, activation, x),
    ):
        x = images(engine).requires_grad_()
        y = forward(x)
        (y * y).sum().backward()
        found.append([np.array(part) for part in (y.detach(), x.grad, conv.weight.grad, bn.weight.grad)])
        nn.Sequential(conv, bn).zero_grad()
    for other in found[1:]:
        for ours, expected in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_a_residual_is_added_before_any_activation(engine: Engine) -> None:
    conv = nn.Conv2d(3, 4, 1).to(engine)
    x, shortcut = images(engine), images(engine, 2, 6, 5, 4)
    for bn in (nn.BatchNorm2d(4), Shifted(4), nn.GroupNorm(2, 4)):
        for activation in (nn.ReLU(), nn.Tanh()):
            drawn(bn).to(engine).eval()
            expected = np.array(activation(bn(conv(x)) + shortcut).detach())
            with alpha.no_grad():
                y = fusion.conv_bn_activation(conv, bn, activation, x, shortcut)
            assert relative(y, expected) <= BOUND


# -- nothing stale -----------------------------------------------------------------------------------------------


def _load(net: Any) -> None:
    other = block(net[0].weight.engine)
    drawn(other, seed=7)
    net.load_state_dict({key: np.array(value) for key, value in other.state_dict().items()})


def _train(net: Any) -> None:
    net.train()
    with alpha.no_grad():
        net(images(net[0].weight.engine, 4, 5, 5, 3) * 3 + 1)
    net.eval()


def _step(net: Any) -> None:
    opt = optim.SGD(net.parameters(), lr=0.1)
    with alpha.enable_grad():
        net(images(net[0].weight.engine)).sum().backward()
    opt.step()


def _replace(net: Any) -> None:
    net[1].running_var = net[1].running_var * 2


def _swap(net: Any) -> None:
    other = drawn(nn.BatchNorm2d(5), seed=9).to(net[0].weight.engine).eval()
    net[1] = other


CHANGES: dict[str, Callable[[Any], Any]] = {
    "filters": lambda net: net[0].weight.mul_(2),
    "a part of the filters": lambda net: net[0].weight.detach()[1].add_(1),
    "bias": lambda net: net[0].bias.add_(1),
    "gamma": lambda net: net[1].weight.mul_(3),
    "beta": lambda net: net[1].bias.sub_(1),
    "mean": lambda net: net[1].running_mean.add_(1),
    "variance": lambda net: net[1].running_var.mul_(2),
    "eps": lambda net: setattr(net[1], "eps", 1.0),
    "drawn anew": lambda net: nn.init.uniform_(net[1].weight, 1, 2),
    "statistics reset": lambda net: net[1].reset_running_stats(),
    "another buffer": _replace,
    "another layer": _swap,
    "no bias": lambda net: setattr(net[0], "bias", None),
    "a state loaded": _load,
    "statistics of a batch": _train,
    "a step of training": _step,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(engine: Engine, change: str) -> None:
    net, x = block(engine), images(engine)
    with alpha.no_grad():
        before = np.array(net(x))
        CHANGES[change](net)
        after = net(x)
        expected = by_layers(net, x)
        assert relative(after, expected) <= BOUND
        assert relative(after, before) > 1e-3
        assert relative(net(x), expected) <= BOUND


def test_arrays_that_share_memory_are_followed() -> None:
    """Writes of NumPy to parameters show in no version."""
    for part in ("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"):
        net, x = block(alpha.engine("cpu")), images(alpha.engine("cpu"))
        with alpha.no_grad():
            net(x)
            array = net.state_dict()[part].numpy()
            net(x)
            array += 1
            assert relative(net(x), by_layers(net, x)) <= BOUND


def test_modes(engine: Engine) -> None:
    """Training statistics serve in train(), and gradients flow outside no_grad, whatever was kept."""
    net, x = block(engine), images(engine)
    with alpha.no_grad():
        folded = np.array(net(x))
        assert kept(net) is not None
        statistics = np.array(net.train()(x))
        assert kept(net) is None  # training gets the memory back
        assert np.abs(statistics - folded).max() > 0.1
        net.eval()
        assert relative(net(x), by_layers(net, x)) <= BOUND
    y = net(x)
    y.sum().backward()
    assert kept(net) is None
    assert net[0].weight.grad is not None and net[1].weight.grad is not None


def test_moved_and_cast(engine: Engine) -> None:
    net = block(engine)
    with alpha.no_grad():
        net(images(engine))
        net.to(alpha.float64)
        x = images(engine, dtype=np.float64)
        assert relative(net(x), by_layers(net, x)) <= EXACT
        net.to(alpha.float32).to("cpu")
        x = images(alpha.engine("cpu"))
        assert relative(net(x), by_layers(net, x)) <= BOUND


def test_copies_go_their_own_way(engine: Engine) -> None:
    net, x = block(engine), images(engine)
    with alpha.no_grad():
        before = np.array(net(x))
        other = copy.deepcopy(net)
        other[1].running_mean.add_(1)
        assert relative(other(x), by_layers(other, x)) <= BOUND
        np.testing.assert_array_equal(np.asarray(net(x)), before)


def test_one_convolution_behind_two_norms(engine: Engine) -> None:
    conv = nn.Conv2d(3, 5, 3).to(engine)
    nets = [nn.Sequential(conv, drawn(nn.BatchNorm2d(5), seed)).to(engine).eval() for seed in (1, 2)]
    x = images(engine)
    with alpha.no_grad():
        for net in nets * 2:
            assert relative(net(x), by_layers(net, x)) <= BOUND


def test_filters_are_folded_once(engine: Engine) -> None:
    net, x = block(engine), images(engine)
    with alpha.no_grad():
        net(x)
        first = kept(net)
        net(x)
        assert kept(net) is first
        net[1].weight.mul_(1)
        net(x)
        assert kept(net) is not first
    held = net[0].weight.engine.memory.in_use
    del net, first
    gc.collect()
    assert alpha.engine(engine.name).memory.in_use < held


def test_a_graph_is_never_fused(engine: Engine) -> None:
    """A replay would go on with the filters of its capture."""
    net, x = block(engine), images(engine)

    def forward(x: alpha.Tensor) -> alpha.Tensor:
        with alpha.no_grad():
            return net(x)  # type: ignore[no-any-return]

    step = alpha.graph(forward)
    for _ in range(5):
        assert relative(step(x), by_layers(net, x)) <= BOUND
        with alpha.no_grad():
            net[1].running_mean.add_(1)
            net[0].weight.mul_(1.5)


# -- nobody's code is left out -----------------------------------------------------------------------------------


class Doubled(nn.Conv2d):
    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return super().forward(x) * 2


class Shifted(nn.BatchNorm2d):
    def forward(self, x: alpha.Tensor, *args: Any, **options: Any) -> alpha.Tensor:
        return super().forward(x, *args, **options) + 1


class Clipped(nn.ReLU):
    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return super().forward(x) * 0.5


@pytest.mark.parametrize("place", range(3))
def test_subclasses_run(engine: Engine, place: int) -> None:
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU())
    net[place] = (Doubled(3, 5, 3), Shifted(5), Clipped())[place]
    drawn(net).to(engine).eval()
    x = images(engine)
    with alpha.no_grad():
        assert relative(net(x), by_layers(net, x)) <= BOUND


@pytest.mark.parametrize("place", range(3))
def test_hooks_run(engine: Engine, place: int) -> None:
    net, x, seen = block(engine), images(engine), []
    with alpha.no_grad():
        expected = np.array(net(x))
        for register in (net[place].register_forward_hook, net[place].register_forward_pre_hook):
            with register(lambda *args: seen.append(len(args))):
                assert relative(net(x), expected) <= BOUND
        assert seen == [3, 2]
        with net[place].register_forward_hook(lambda module, args, result: result * 2):
            assert relative(net(x), expected) > 0.01
        assert relative(net(x), expected) == 0  # and are gone with their handle


@pytest.mark.parametrize("place", range(3))
def test_a_forward_of_ones_own_runs(engine: Engine, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = block(engine), images(engine)
    kind = type(net[place])
    inner = kind.forward
    with alpha.no_grad():
        before = np.array(net(x))
        net[place].forward = lambda x, *args, **options: inner(net[place], x, *args, **options) * 2
        assert relative(net(x), before) > 0.01
        del net[place].forward
        assert relative(net(x), before) == 0
        monkeypatch.setattr(kind, "forward", lambda self, x, *args, **options: inner(self, x, *args, **options) * 2)
        assert relative(net(x), before) > 0.01


def test_other_modules_in_the_places(engine: Engine) -> None:
    """``conv_bn`` calls what it is given."""
    x = images(engine)
    bn = drawn(nn.BatchNorm2d(3)).to(engine).eval()
    with alpha.no_grad():
        y = fusion.conv_bn(nn.Identity(), bn, x, residual=x, activation="relu")
        assert relative(y, np.array(bn(x, residual=x, activation="relu"))) == 0


def test_errors_are_the_layers(engine: Engine) -> None:
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(4)).to(engine).eval()
    with alpha.no_grad():
        with pytest.raises(alpha.errors.ShapeError, match=r"\[batch_norm\] expected x with 4 axes, the last of 4"):
            net(images(engine))
        with pytest.raises(alpha.errors.ShapeError, match=r"\[conv2d\] expected x.shape\[3\] == w.shape\[3\]"):
            net(images(engine, 1, 4, 4, 2))
