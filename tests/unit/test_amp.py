"""``alpha.amp``: the scaler of gradients and autocast are PyTorch's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import amp, casts, dtypes, nn, optim
from alpha.engine import Engine
from alpha.errors import ArgumentError, CheckpointError, DtypeError

OPTIONS = {"init_scale": 1024.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2}


def train(package: Any, optimizers: Any, scaler: Any, tensor: Any, unscales: bool) -> list[float]:
    """Scales and weights over steps, two of which have a gradient that is not finite."""
    net = package.Linear(2, 1, bias=False)
    net.weight.data.copy_(tensor([[1.0, -2.0]]))
    opt = optimizers.SGD(net.parameters(), lr=0.1)
    found: list[float] = []
    for value in (1.0, 2.0, float("inf"), 3.0, float("nan"), 1.0, 1.0, 1.0, 1.0):
        opt.zero_grad()
        scaler.scale(net(tensor([[value, 1.0]])).sum()).backward()
        if unscales:
            scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        found += [scaler.get_scale(), *net.weight.detach().flatten().tolist()]
    return found


@pytest.mark.needs("torch")
@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_the_scaler_is_pytorchs(enabled: bool, unscales: bool) -> None:
    import torch

    theirs = torch.amp.GradScaler("cpu", **OPTIONS, enabled=enabled)
    ours = amp.GradScaler("cpu", **OPTIONS, enabled=enabled)
    expected = train(torch.nn, torch.optim, theirs, torch.tensor, unscales)
    np.testing.assert_allclose(train(nn, optim, ours, alpha.tensor, unscales), expected, rtol=1e-6, equal_nan=True)
    assert ours.state_dict() == theirs.state_dict() and ours.is_enabled() == theirs.is_enabled()


def test_several_losses_and_a_new_scale() -> None:
    scaler = amp.GradScaler(init_scale=8.0)
    one = alpha.ones(1)
    assert [x.item() for x in scaler.scale([one, one * 2])] == [8.0, 16.0] and type(scaler.scale((one,))) is tuple
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0
    scaler.update(alpha.tensor(3.0))
    state = scaler.state_dict()
    other = amp.GradScaler()
    other.load_state_dict(state)
    assert other.state_dict() == state and other.get_scale() == 3.0
    for wrong in ({}, None, {**state, "scale": "much"}):
        with pytest.raises((CheckpointError, ArgumentError), match=r"\[GradScaler\] expected"):
            other.load_state_dict(wrong)  # type: ignore[arg-type]
        assert other.state_dict() == state


def test_gradients_with_a_graph_are_scaled_outside_it() -> None:
    net = nn.Linear(1, 1)
    scaler = amp.GradScaler(init_scale=8.0)
    scaler.scale(net(alpha.ones(1, 1)).square().sum()).backward(create_graph=True)
    before = np.asarray(net.weight.grad.detach()) / 8  # type: ignore[union-attr]
    scaler.unscale_(optim.SGD(net.parameters(), lr=0.1))
    np.testing.assert_allclose(np.asarray(net.weight.grad.detach()), before, rtol=1e-6)  # type: ignore[union-attr]


def test_wrong_order() -> None:
    net = nn.Linear(1, 1)
    opt, scaler = optim.SGD(net.parameters(), lr=0.1), amp.GradScaler()
    with pytest.raises(ArgumentError, match=r"\[GradScaler.update\] expected a step before it, got none"):
        scaler.update()
    scaler.scale(net(alpha.ones(1, 1)).sum()).backward()
    scaler.unscale_(opt)
    with pytest.raises(ArgumentError, match=r"expected one call between updates, got one after another unscale_"):
        scaler.unscale_(opt)
    scaler.step(opt)
    with pytest.raises(ArgumentError, match=r"\[GradScaler.step\] expected one call between updates, got another"):
        scaler.step(opt)
    with pytest.raises(ArgumentError, match=r"got one after a step"):
        scaler.unscale_(opt)
    with pytest.raises(ArgumentError, match=r"\[GradScaler.scale\] expected a tensor, or several, got 3"):
        scaler.scale(3)
    for options in ({"init_scale": 0.0}, {"growth_factor": 1.0}, {"backoff_factor": 1.0}, {"growth_interval": 0}):
        with pytest.raises(ArgumentError, match=r"\[GradScaler\] expected"):
            amp.GradScaler(**options)


def test_autocast_is_off() -> None:
    with alpha.autocast("cpu", enabled=False), alpha.cuda.amp.autocast(enabled=False):
        assert (alpha.ones(2, 2) @ alpha.ones(2, 2)).dtype == alpha.float32 and not alpha.is_autocast_enabled()

    @alpha.autocast("cuda", dtype=alpha.bfloat16, enabled=False)
    def twice(x: alpha.Tensor) -> alpha.Tensor:
        return x * 2

    assert twice(alpha.ones(1)).tolist() == [2.0]


def test_wrong_arguments_of_autocast() -> None:
    for options, message in (
        ({"device_type": "xpu9"}, "expected a dtype"),
        ({"device_type": "tpu", "dtype": "bfloat16"}, 'expected device_type "cpu" or "cuda", got \'tpu\''),
        ({"dtype": alpha.float32}, "expected dtype bfloat16 or float16, got float32"),
        ({"dtype": alpha.int16}, "expected dtype bfloat16 or float16, got int16"),
    ):
        with pytest.raises((ArgumentError, DtypeError), match=r"\[autocast\] " + message):
            alpha.autocast(**options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"\[get_autocast_dtype\] expected device_type"):
        alpha.get_autocast_dtype("tpu")
    assert amp.is_autocast_available("cpu") and not amp.is_autocast_available("tpu")


def test_blocks_within_blocks() -> None:
    x = alpha.ones(2, 2)
    assert alpha.get_autocast_dtype("cpu") == alpha.bfloat16 and alpha.get_autocast_dtype("cuda") == alpha.float16
    with alpha.autocast("bfloat16"):
        assert (x @ x).dtype == alpha.bfloat16 and alpha.is_autocast_enabled("cuda")
        with alpha.autocast("cpu", dtype="float16"):
            assert (x @ x).dtype == alpha.float16 == alpha.get_autocast_dtype("cpu")
            with alpha.autocast("cpu", enabled=False):
                assert (x @ x).dtype == alpha.float32
            assert (x @ x).dtype == alpha.float16
        assert (x @ x).dtype == alpha.bfloat16
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append((x @ x).dtype))
        thread.start()
        thread.join()
        assert found == [alpha.float32]  # a block is its thread's
    with alpha.autocast("cuda"):
        assert (x @ x).dtype == alpha.float32
    assert (x @ x).dtype == alpha.float32 and not alpha.is_autocast_enabled()
    with contextlib.suppress(ZeroDivisionError), alpha.autocast("cpu"):
        1 / 0  # noqa: B018
    assert not alpha.is_autocast_enabled()


IMAGES, ROWS = (2, 4, 5, 3), (4, 6)
CALLS: dict[str, Callable[..., Any]] = {
    "matmul": lambda p, f, x: x @ x.T,
    "mm": lambda p, f, x: p.mm(x, x.T),
    "bmm": lambda p, f, x: p.bmm(x[None], x.T[None]),
    "addmm": lambda p, f, x: p.addmm(x[:, :4], x, x.T),
    "baddbmm": lambda p, f, x: p.baddbmm(x[None, :, :4], x[None], x.T[None]),
    "linear": lambda p, f, x: f.linear(x, x, x[:, 0]),
    "einsum": lambda p, f, x: p.einsum("ij,kj->ik", x, x),
    "attention": lambda p, f, x: f.scaled_dot_product_attention(x[None], x[None], x[None]),
    "conv1d": lambda p, f, x: f.conv1d(x[None], x[:, :, None].permute(1, 0, 2)),
    "conv2d": lambda p, f, x: f.conv2d(x[None, None], x[None, None, :2, :2]),
    "conv_transpose2d": lambda p, f, x: f.conv_transpose2d(x[None, None], x[None, None, :2, :2]),
    "prelu": lambda p, f, x: f.prelu(x, x[0, :1]),
    "cross_entropy": lambda p, f, x: f.cross_entropy(x, p.tensor([0, 1, 2, 3])),
    "nll_loss": lambda p, f, x: f.nll_loss(x, p.tensor([0, 1, 2, 3])),
    "mse_loss": lambda p, f, x: f.mse_loss(x, x * 2),
    "binary_cross_entropy_with_logits": lambda p, f, x: f.binary_cross_entropy_with_logits(x, x),
    "add": lambda p, f, x: x + x,
    "relu": lambda p, f, x: f.relu(x),
    "mean": lambda p, f, x: x.mean(),
    "max": lambda p, f, x: x.max(),
}
"""Calls of a package, its functions and a matrix (4, 6) whose results have the same dtype here and in PyTorch."""

IN_FLOAT32 = ("sum", "prod", "exp", "log", "rsqrt", "softmax", "log_softmax", "cumsum", "norm", "logsumexp", "pow")
"""Methods that PyTorch computes in float32 on GPUs."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_results_have_pytorchs_dtypes(name: str, dtype: str) -> None:
    import torch

    numbers = np.random.default_rng(0).uniform(0.1, 0.9, ROWS)
    theirs = torch.tensor(numbers, dtype=getattr(torch, dtype))
    ours = alpha.tensor(numbers).to(dtypes.as_dtype(dtype))
    call = CALLS[name]
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = call(torch, torch.nn.functional, theirs)
    except RuntimeError:  # what one of PyTorch's own kernels lacks
        pytest.skip("PyTorch has no such kernel")
    with alpha.autocast("cpu"), alpha.set_image_layout("NCHW"):
        found = call(alpha, nn.functional, ours)
    assert str(found.dtype) == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(
        found.detach().double().numpy(), expected.detach().double().numpy(), rtol=3e-2, atol=3e-2
    )


@pytest.mark.parametrize("name", IN_FLOAT32)
def test_halves_are_summed_in_float32(name: str, engine: Engine) -> None:
    arguments = {"softmax": (1,), "log_softmax": (1,), "cumsum": (0,), "logsumexp": (1,), "pow": (2.0,)}.get(name, ())
    x = (alpha.rand(*ROWS, engine=engine) + 0.5).bfloat16()
    with alpha.autocast("bfloat16"):
        found = getattr(x, name)(*arguments)
    exact = getattr(x.float(), name)(*arguments)
    assert found.dtype == alpha.float32
    np.testing.assert_array_equal(found.numpy(), exact.numpy())


def test_normalisation_keeps_its_inputs_dtype_and_its_statistics(engine: Engine) -> None:
    norm = nn.BatchNorm2d(3).to(engine)
    other = nn.BatchNorm2d(3).to(engine)
    x = alpha.randn(*IMAGES, engine=engine).bfloat16().requires_grad_()
    with alpha.autocast("bfloat16"):
        y = norm(x)
    exact = other(x.detach().float())
    assert y.dtype == alpha.bfloat16 and norm.running_var is not None and norm.running_var.dtype == alpha.float32
    np.testing.assert_array_equal(y.detach().numpy(), exact.detach().bfloat16().numpy())
    np.testing.assert_array_equal(norm.running_var.numpy(), other.running_var.numpy())  # type: ignore[union-attr]
    y.float().sum().backward()
    assert x.grad is not None and x.grad.dtype == alpha.bfloat16
    assert norm.weight.grad is not None and norm.weight.grad.dtype == alpha.float32
    halves = nn.BatchNorm2d(3).to(engine).bfloat16()  # statistics of halves are written where they are
    with alpha.autocast("bfloat16"):
        halves(x.detach())
    assert halves.running_mean is not None and halves.running_mean.float().abs().sum().item() > 0


@pytest.mark.needs("torch")
def test_training_is_pytorchs() -> None:
    """The same network, from the same weights, in both: losses and gradients, which are float32's."""
    import torch

    def build(package: Any) -> Any:
        return package.Sequential(
            package.Conv2d(2, 4, 3, padding=1), package.BatchNorm2d(4), package.ReLU(), package.Flatten(),
            package.Linear(64, 8), package.LayerNorm(8), package.Linear(8, 3),
        )  # fmt: skip

    torch.manual_seed(0)
    theirs = build(torch.nn)
    x, labels = np.random.default_rng(0).standard_normal((6, 2, 4, 4)).astype(np.float32), np.arange(6) % 3
    with alpha.set_image_layout("NCHW"):
        ours = build(nn)
        ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
        with alpha.autocast("cpu"):
            loss = nn.functional.cross_entropy(ours(alpha.tensor(x)), alpha.tensor(labels))
        loss.backward()
    with torch.autocast("cpu"):
        expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(labels))
    expected.backward()
    assert loss.dtype == alpha.float32 and abs(loss.item() - expected.item()) < 2e-2
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None and mine.grad.dtype == alpha.float32
        if mine.grad.ndim < 4:  # filters lie in another order
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=0.1, atol=2e-2)


def test_a_parameters_cast_is_made_once() -> None:
    layer = nn.Linear(3, 3)
    x = alpha.ones(2, 3)
    with alpha.autocast("cpu"):
        first = layer(x)
        with alpha.autocast("cpu"):
            kept = dict(casts.THREAD.kept)
            layer(x)
            assert len(kept) == 2 and casts.THREAD.kept == kept
        with alpha.no_grad():
            layer.weight.fill_(0)
            layer.bias.fill_(1)  # type: ignore[union-attr]
        second = layer(x)
        assert second.tolist() == [[1.0] * 3] * 2  # what was changed is cast again
    assert not casts.THREAD.kept
    (first.float().sum() + second.float().sum()).backward()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[4.0] * 3] * 3
    with alpha.autocast("cpu", cache_enabled=False):
        layer(x)
        assert not casts.THREAD.kept


def test_inference_keeps_casts_until_the_parameter_changes() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Conv2d(5, 4, 1, bias=False))
    x, weight = alpha.randn(2, 3, 3, 6), net[0].weight

    def result(block: Any) -> np.ndarray[Any, Any]:
        with block(), alpha.autocast(alpha.bfloat16):
            y = net(x)
        assert y.dtype == alpha.bfloat16 and y.requires_grad == (block is contextlib.nullcontext)
        found: np.ndarray[Any, Any] = y.detach().float().numpy()
        return found

    first = result(alpha.no_grad)
    kept = [value for key, value in weight.storage.cache.items() if key[0] == "cast"]
    assert len(kept) == 1 and kept[0][1].dtype == alpha.bfloat16
    np.testing.assert_array_equal(result(alpha.no_grad), first)
    assert [value for key, value in weight.storage.cache.items() if key[0] == "cast"] == kept
    with alpha.no_grad():
        weight.mul_(2.0)
        net[0].bias.mul_(2.0)
    np.testing.assert_array_equal(result(alpha.no_grad), 2 * first)
    np.testing.assert_array_equal(result(contextlib.nullcontext), 2 * first)  # training drops it
    assert not [key for key in weight.storage.cache if key[0] == "cast"]


def test_inference_keeps_no_casts_where_it_is_told_not_to() -> None:
    net = nn.Sequential(nn.Conv2d(4, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)).eval()
    with alpha.no_grad(), alpha.autocast("cpu", alpha.bfloat16, cache_enabled=False):
        assert net(alpha.randn(2, 5, 5, 4)).dtype == alpha.bfloat16
    folded = net[0].weight.storage.cache["folded"].weight
    for tensor in (*net.parameters(), folded):
        assert not [key for key in tensor.storage.cache if key[0] == "cast"]


def test_a_checkpoint_casts_in_backward_too() -> None:
    layer, x, given = nn.Linear(3, 3), alpha.randn(2, 3), []

    def called(x: alpha.Tensor) -> alpha.Tensor:
        given.append(layer(x).dtype)
        return layer(x).float()

    with alpha.autocast("cpu"):
        y = alpha.checkpoint(called, x)
    y.sum().backward()
    assert given == [alpha.bfloat16] * 2 and not casts.BLOCKS


def test_recurrent_layers_and_attention() -> None:
    x = alpha.randn(2, 5, 8)
    with alpha.autocast("cpu"):
        for layer in (nn.LSTM(8, 4), nn.GRU(8, 4), nn.MultiheadAttention(8, 2)):
            y = layer(x, x, x)[0] if isinstance(layer, nn.MultiheadAttention) else layer(x)[0]
            assert y.dtype == alpha.bfloat16
            y.float().sum().backward()
            assert all(p.grad is None or p.grad.dtype == alpha.float32 for p in layer.parameters())
        assert nn.TransformerEncoderLayer(8, 2)(x).shape == x.shape
