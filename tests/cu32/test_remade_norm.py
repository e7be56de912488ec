"""Results of BatchNorm that are made again in backward instead of kept: the same bits, less memory, the same errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.autograd import grad
from alpha.autograd.kept import Remade
from alpha.cu32 import normalisation
from alpha.cu32.norm_convolutions import NormConvolutions
from alpha.engine import BatchNormState, Engine, Epilogue
from alpha.errors import GraphError
from alpha.nn import functional as F
from alpha.records import Normalised
from alpha.testing import gradcheck, gradgradcheck

Array = np.ndarray[Any, Any]
KEPT = 1 << 62
SLOPES = [None, 0.0, 0.2, 1.0]


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small results too are made again; sums are taken in passes of their own, whether results are kept or not."""
    monkeypatch.setattr(normalisation, "REMADE_FROM", 0)
    monkeypatch.setattr(NormConvolutions, "measures_convolutions", lambda self, x: False)


class Block(nn.Module):
    """Two convolutions and BatchNorms, with a shortcut that goes through a convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, slope: float | None) -> None:
        super().__init__()
        self.slope = slope
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.turn = None
        if stride != 1 or inputs != outputs:
            self.turn = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        shortcut = x if self.turn is None else self.turn(x)
        how = {} if self.slope is None else {"activation": "leaky_relu", "negative_slope": self.slope}
        return self.bn2(self.conv2(self.bn1(self.conv1(x), **how)), residual=shortcut, **how)


def network(engine: Engine, slope: float | None) -> Any:
    alpha.manual_seed(1)
    layers = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5), Block(5, 5, 1, slope), Block(5, 6, 2, slope),
        Block(6, 6, 1, slope), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip
    return layers.to(engine).train()


def batches(engine: Engine, count: int, dtype: Any = np.float32) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(4)
    arrays = [(rng.standard_normal((7, 9, 6, 3)).astype(dtype), rng.integers(0, 4, 7)) for _ in range(count)]
    return [(alpha.tensor(x, engine=engine), alpha.tensor(y, engine=engine)) for x, y in arrays]


def trained(engine: Engine, slope: float | None, wrap: Callable[[Any], Any], dtype: Any = np.float32) -> list[Array]:
    """Losses, and the weights and buffers after some steps."""
    net = network(engine, slope)
    if dtype != np.float32:
        net = net.to(dtype)
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = wrap(step)
    losses = [np.array(step(x, y).detach()) for x, y in batches(engine, 6, dtype)]
    return [*losses, *[np.array(value) for value in net.state_dict().values()]]


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("wrap", [lambda step: step, alpha.graph], ids=["eager", "captured"])
def test_training_has_the_same_bits(
    cu32: Engine, monkeypatch: pytest.MonkeyPatch, slope: float | None, wrap: Callable[[Any], Any]
) -> None:
    found = trained(cu32, slope, wrap)
    monkeypatch.setattr(normalisation, "REMADE_FROM", KEPT)
    for ours, kept in zip(found, trained(cu32, slope, lambda step: step), strict=True):
        np.testing.assert_array_equal(ours, kept)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_dtypes_have_the_same_bits(cu32: Engine, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    found = trained(cu32, 0.1, lambda step: step, np.dtype(dtype))
    monkeypatch.setattr(normalisation, "REMADE_FROM", KEPT)
    for ours, kept in zip(found, trained(cu32, 0.1, lambda step: step, np.dtype(dtype)), strict=True):
        np.testing.assert_array_equal(ours, kept)


def test_of_each_pair_of_convolution_and_norm_one_result_stays(cu32: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha.manual_seed(0)
    net = nn.Sequential(*[Block(16, 16, 1, 0.1) for _ in range(3)]).to(cu32).train()
    x = alpha.tensor(np.random.default_rng(0).standard_normal((8, 16, 16, 16)).astype(np.float32), engine=cu32)
    one, held, peaks = x.nbytes, [], []
    for remade_from in (0, KEPT):
        monkeypatch.setattr(normalisation, "REMADE_FROM", remade_from)
        cu32.memory.reset_peak()
        before = cu32.memory.in_use
        y = net(x)
        held.append((cu32.memory.in_use - before) / one)
        y.sum().backward()
        peaks.append((cu32.memory.peak - before) / one)
        net.zero_grad()
        del y
    assert held[0] == pytest.approx(7, abs=0.3)  # six results of convolutions, and the last block's
    assert held[1] == pytest.approx(12, abs=0.3)
    assert peaks[0] <= peaks[1] - 2


def chain(engine: Engine, count: int, shape: tuple[int, ...], dtype: Any) -> list[Normalised]:
    """Terms of all kinds: with and without weight, bias and activation, and of any sign."""
    rng = np.random.default_rng(count)

    def made(*shape: int, dtype: Any = dtype) -> Any:
        return alpha.tensor(rng.standard_normal(shape).astype(dtype), engine=engine)

    terms = []
    for number in range(count):
        state = BatchNormState(made(shape[-1], dtype=np.float64), made(shape[-1], dtype=np.float64), True)
        weight, bias = made(shape[-1]), made(shape[-1])
        epilogue = Epilogue(weight if number % 3 else None, bias if number % 2 else None, SLOPES[(number + 1) % 4])
        terms.append(Normalised(made(*shape), epilogue, state))
    return terms


@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("shape", [(3, 5, 7, 8), (2, 3, 1, 5), (1, 1, 2, 1), (6, 4, 4, 132)], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_chain_has_the_bits_of_its_norms(
    cu32: Engine, count: int, shape: tuple[int, ...], with_residual: bool
) -> None:
    """One pass, or for five terms several."""
    for dtype in (np.float32, np.float64):
        terms = chain(cu32, count, shape, dtype)
        residual = terms[0].x * -1 if with_residual else None
        found = np.array(cu32.batch_norm_chain_again(terms, residual))
        np.testing.assert_array_equal(found, np.array(Engine.batch_norm_chain_again(cu32, terms, residual)))


def test_a_chain_of_any_order_in_memory(cu32: Engine) -> None:
    terms = chain(cu32, 3, (3, 4, 5, 8), np.float32)
    expected = np.array(cu32.batch_norm_chain_again(terms, None))
    turned = [term._replace(x=term.x.transpose(0, 1).contiguous().transpose(0, 1)) for term in terms[1:]]
    np.testing.assert_array_equal(np.array(cu32.batch_norm_chain_again([terms[0], *turned], None)), expected)
    special = terms[0].x.clone()
    special[0, 0, 0, :4] = alpha.tensor([np.inf, -np.inf, np.nan, -0.0], engine=cu32)
    odd = [terms[0], terms[1]._replace(x=special), terms[2]]
    found = np.array(cu32.batch_norm_chain_again(odd, special))
    np.testing.assert_array_equal(found, np.array(Engine.batch_norm_chain_again(cu32, odd, special)))


def test_of_a_chain_of_blocks_one_result_is_made_at_a_time(cu32: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies between the last block's result and the first's input is not in memory; the bits are the same."""
    peaks, grads = [], []
    for most in (4, 1):
        monkeypatch.setattr(type(cu32), "most_chained_norms", most)
        alpha.manual_seed(0)
        net = nn.Sequential(*[Block(16, 16, 1, 0.1) for _ in range(4)]).to(cu32).train()
        x = alpha.tensor(np.random.default_rng(0).standard_normal((8, 16, 16, 16)).astype(np.float32), engine=cu32)
        y = F.conv2d(net(x), net[0].conv1.weight)
        cu32.memory.reset_peak()
        before = cu32.memory.in_use
        y.sum().backward()
        peaks.append((cu32.memory.peak - before) / x.nbytes)
        grads.append([np.array(p.grad) for p in net.parameters()])
        del y, net
    assert peaks[0] <= peaks[1] - 1.9
    for ours, right in zip(*grads, strict=True):
        np.testing.assert_array_equal(ours, right)


def used(cu32: Engine) -> tuple[Any, Any, Any, Any]:
    """x, weights of a norm and of a convolution, and the norm's result."""
    rng = np.random.default_rng(2)
    x, w, gamma = (
        alpha.tensor(rng.standard_normal(shape).astype(np.float32), engine=cu32, requires_grad=True)
        for shape in ((4, 5, 5, 3), (2, 3, 3, 3), (3,))
    )
    return x, w, gamma, F.batch_norm(x * 1, None, None, gamma, training=True, activation="relu")


def is_remade(y: Any) -> bool:
    return any(entry is not None and type(entry[0]) is Remade for entry in y._node._saved)


OVERWRITING: dict[str, Callable[[Any], Any]] = {
    "+=": lambda y: y.add_(1),
    "in the graph": lambda y: y.mul_(2),
    "copy_": lambda y: y.copy_(y.detach() * 3),
    "a part": lambda y: y.__setitem__((0, 0), 5.0),
    "through a view": lambda y: y[1:].zero_(),
    "fill_": lambda y: y.fill_(2),
    "relu_": lambda y: F.leaky_relu(y, 0.1, inplace=True),
}


@pytest.mark.parametrize("grad_mode", [False, True])
@pytest.mark.parametrize("name", OVERWRITING)
def test_overwriting_it_does_what_it_did(
    cu32: Engine, monkeypatch: pytest.MonkeyPatch, name: str, grad_mode: bool
) -> None:
    """The error of a kept result that was overwritten, or, where it got other memory, its gradients."""
    found: list[Any] = []
    for remade_from in (0, KEPT):
        monkeypatch.setattr(normalisation, "REMADE_FROM", remade_from)
        x, w, _, y = used(cu32)
        z = F.conv2d(y, w)
        assert is_remade(z) == (remade_from == 0)
        with alpha.set_grad_enabled(grad_mode):
            OVERWRITING[name](y)
        try:
            found.append([np.array(one) for one in grad(z.sum(), (x, w))])
        except GraphError as error:
            assert "overwrote" in str(error)
            found.append("overwrote")
    ours, kept = found
    assert isinstance(ours, list) == isinstance(kept, list)
    if isinstance(kept, list):
        for one, right in zip(ours, kept, strict=True):
            np.testing.assert_array_equal(one, right)


def test_what_was_overwritten_before_is_kept(cu32: Engine) -> None:
    found = []
    for in_place in (True, False):
        x, w, _, y = used(cu32)
        y = y.mul_(2) if in_place else y * 2
        z = F.conv2d(y, w)
        assert not is_remade(z)
        found.append([np.array(one) for one in grad(z.sum(), (x, w))])
    for ours, right in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, right)


def test_it_is_made_before_its_norm_is_freed(cu32: Engine) -> None:
    """One backward frees the norm; another, of the convolution's filters alone, comes later."""
    _, w, gamma, y = used(cu32)
    z = F.conv2d(y, w)
    assert is_remade(z)
    expected = np.array(grad(z.sum(), w, retain_graph=True)[0])
    (y * 3).sum().backward()
    assert gamma.grad is not None
    np.testing.assert_array_equal(np.array(grad(z.sum(), w)[0]), expected)


def test_two_backwards_of_a_retained_graph(cu32: Engine) -> None:
    x, w, gamma, y = used(cu32)
    z = (F.conv2d(y, w) ** 2).sum()
    first = grad(z, (x, w, gamma), retain_graph=True)
    for one, other in zip(first, grad(z, (x, w, gamma)), strict=True):
        np.testing.assert_array_equal(np.array(one), np.array(other))
    with pytest.raises(GraphError, match="retain_graph"):
        z.backward()


def test_who_saves_it_outside_the_graph_keeps_it_alone(cu32: Engine) -> None:
    x, w, _, y = used(cu32)
    kept = y.detach()
    z = F.conv2d(kept, w)
    assert not is_remade(z)
    before = cu32.memory.in_use
    del x, y
    assert cu32.memory.in_use < before
    grad(z.sum(), w)


def test_its_argument_is_not_written_over_while_somebody_has_it(cu32: Engine) -> None:
    rng = np.random.default_rng(2)
    x = alpha.tensor(rng.standard_normal((6, 4, 4, 8)).astype(np.float32), engine=cu32, requires_grad=True)
    held = x * 2
    before = np.array(held.detach())
    F.batch_norm(held, None, None, training=True).square().sum().backward()
    np.testing.assert_array_equal(np.array(held.detach()), before)
    product = x * 3
    z = product * product  # saves it, too
    (F.batch_norm(product, None, None, training=True).sum() + z.sum()).backward()
    np.testing.assert_array_equal(np.array(product.detach()), 3 * np.array(x.detach()))


@pytest.mark.parametrize("slope", [None, 0.3])
@pytest.mark.parametrize("with_residual", [False, True])
def test_gradients_of_any_order(cu32: Engine, slope: float | None, with_residual: bool) -> None:
    rng = np.random.default_rng(3)
    shapes = ((3, 2, 3, 4), (4,), (4,), (3, 2, 3, 4))
    t = [alpha.tensor(rng.standard_normal(shape) + 0.1, engine=cu32) for shape in shapes]
    how: dict[str, Any] = {} if slope is None else {"activation": "leaky_relu", "negative_slope": slope}

    def twice(x: Any, w: Any, b: Any, r: Any) -> Any:
        y = F.batch_norm(x, None, None, w, b, True, **how)
        return F.batch_norm(y * w, None, None, w, b, True, residual=r if with_residual else None, **how) * r

    assert gradcheck(twice, *t)
    assert gradgradcheck(twice, *t)


def test_a_convolution_too_is_computed_again(cu32: Engine) -> None:
    """``alpha.checkpoint(conv, x, keep_result=False)``: the same bits, and its result is not held."""
    grads, held = [], []
    for recompute in (False, True):
        alpha.manual_seed(0)
        net = nn.models.resnet18(4, base_width=8, dropout=0.0, recompute=recompute).to(cu32).train()
        images = alpha.tensor(np.random.default_rng(0).standard_normal((16, 32, 32, 3)).astype(np.float32), engine=cu32)
        before = cu32.memory.in_use
        y = net(images)
        held.append(cu32.memory.in_use - before)
        y.square().sum().backward()
        grads.append([np.array(p.grad) for p in net.parameters()])
    for ours, plain in zip(*grads, strict=True):
        np.testing.assert_array_equal(ours, plain)
    one = 16 * 16 * 16 * 8 * 4  # of the first stage; the second's are half of it
    assert held[0] - held[1] == pytest.approx(4 * one, rel=0.1)
