"""Gradients of gradients: what PyTorch's samples do not reach, and the functions that ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import func, nn
from alpha.autograd import functional, once_differentiable
from alpha.autograd.gradients import grad
from alpha.engine import Engine
from alpha.errors import ArgumentError, GraphError, NumericsError
from alpha.testing import gradcheck, gradgradcheck

Array = np.ndarray[Any, Any]


def written_in_place(x: Any) -> Any:
    y = x * 1.0
    y[1:] = y[1:].clone() * y[:-1].clone()
    y.mul_(x)
    return y**2


def written_through_views(x: Any) -> Any:
    y = x * 1.0
    y[0].exp_()
    z = y * y.clone()
    z[:, 1].mul_(2.0)
    return z**2


def normalised(**options: Any) -> Callable[..., Any]:
    return lambda x, w, b, *r: F.batch_norm(x, None, None, w, b, True, residual=r[0] if r else None, **options) ** 2


IMAGE, WEIGHT = (2, 3, 4, 4), (4,)
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "in place": (written_in_place, [(3, 4)]),
    "views": (written_through_views, [(3, 4)]),
    "broadcast": (lambda x, y: (x * y).tanh() / (y * y + 1), [(2, 3), (3,)]),
    "sum in one pass": (lambda x, y: F.mse_loss(x * x, y), [(3, 4), (3, 4)]),
    "indices": (lambda x: x[alpha.tensor([0, 2, 2], engine=x.engine)] ** 2, [(3, 4)]),
    "linear, one row": (lambda x, w, b: F.linear(x, w, b) ** 2, [(1, 4), (3, 4), (3,)]),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), [(2, 5, 6, 3), (4, 3, 3, 3), (4,)]),
    "groups": (lambda x, w: F.conv2d(x, w, dilation=2, padding=2, groups=2), [(2, 5, 6, 4), (4, 3, 2, 2)]),
    "residual": (
        lambda x, w, r: F.conv2d(x, w, padding=1, residual=r, activation="leaky_relu"),
        [(2, 3, 4, 3), (4, 3, 3, 3), (2, 3, 4, 4)],
    ),
    "deconvolution": (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), [(2, 3, 4, 3), (3, 3, 3, 4)]),
    "volumes": (lambda x, w: F.conv3d(x, w, stride=2, padding=1), [(1, 4, 3, 4, 2), (3, 3, 3, 3, 2)]),
    "batch_norm": (normalised(), [IMAGE, WEIGHT, WEIGHT]),
    "batch_norm, activation": (normalised(activation="leaky_relu"), [IMAGE, WEIGHT, WEIGHT]),
    "batch_norm, residual": (normalised(activation="leaky_relu"), [IMAGE, WEIGHT, WEIGHT, IMAGE]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [IMAGE, WEIGHT, WEIGHT]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 4, 4), (2, 4, 4), (2, 4, 3)]
    ),
    "attention, mask": (
        F.scaled_dot_product_attention, [(2, 3, 4), (2, 5, 4), (2, 5, 3), (3, 5)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_have_gradients(name: str, rng: np.random.Generator) -> None:
    function, shapes = CASES[name]
    assert gradgradcheck(function, *[rng.standard_normal(shape) for shape in shapes])


AT_ZERO: dict[str, tuple[Callable[..., Any], float]] = {
    "softplus": (F.softplus, 0.25),
    "logsigmoid": (F.logsigmoid, -0.25),
    "mish": (F.mish, 0.64),
    "sinh's slope": (lambda x: alpha.autograd.grad(alpha.sinh(x).sum(), x, create_graph=True)[0], 1.0),
    "cosh": (alpha.cosh, 1.0),
    "soft_margin_loss": (lambda x: F.soft_margin_loss(x, alpha.ones_like(x), reduction="none"), 0.25),
    "multilabel": (lambda x: F.multilabel_soft_margin_loss(x, alpha.ones_like(x), reduction="none"), 0.25),
    "equal elements": (lambda x: alpha.logcumsumexp(alpha.stack([x, x.detach()]), 0)[1], 0.25),
    "digamma at 1": (lambda x: alpha.digamma(x + 1), -2.4041138063191885),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_second_gradients_at_zero(engine: Engine, name: str) -> None:
    """There the expressions change branches, which the functions do not."""
    function, expected = AT_ZERO[name]
    x = alpha.tensor([[0.0]], dtype="float64", engine=engine, requires_grad=True)
    (slope,) = grad(function(x).sum(), x, create_graph=True)
    (second,) = grad(slope.sum(), x)
    assert second.item() == pytest.approx(expected, rel=1e-12)


def test_batch_norm_that_kept_its_result(rng: np.random.Generator) -> None:
    """Its argument is found again from the result that the next function saved."""

    def block(x: Any, w: Any, b: Any, v: Any) -> Any:
        y = F.batch_norm(x, None, None, w, b, True, activation="leaky_relu")
        return F.conv2d(y, v, padding=1)

    arrays = [rng.standard_normal(shape) for shape in (IMAGE, WEIGHT, WEIGHT, (2, 3, 3, 4))]
    assert gradgradcheck(block, *arrays, rtol=1e-4)


def test_grad_of_results_on_the_way(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], engine=engine, requires_grad=True)
    h = x * x
    y = (h * x).sum()
    dh, dx = grad(y, (h, x), retain_graph=True)
    np.testing.assert_allclose(np.asarray(dh), [1, 2])
    np.testing.assert_allclose(np.asarray(dx), [3, 12])
    assert x.grad is None
    (third,) = grad(grad(grad(y, x, create_graph=True)[0].sum(), x, create_graph=True)[0].sum(), x)
    np.testing.assert_allclose(np.asarray(third), [6, 6])


def test_penalty_on_gradients_reaches_the_weights(engine: Engine) -> None:
    w = alpha.tensor([[1.0, -2.0]], engine=engine, requires_grad=True)
    x = alpha.tensor([[3.0, 1.0]], engine=engine, requires_grad=True)
    (slope,) = grad(F.linear(x, w).sum() ** 2, x, create_graph=True)
    slope.norm().backward()
    # slope = 2 s w with s = 1, so |slope| = 2 |s| |w|, whose gradient is 2 (|w| x + s w / |w|)
    size = np.sqrt(5)
    np.testing.assert_allclose(np.asarray(w.grad), 2 * (size * np.array([[3, 1]]) + np.array([[1, -2]]) / size), 1e-5)


def test_backward_creates_a_graph(engine: Engine) -> None:
    x = alpha.tensor([2.0], engine=engine, requires_grad=True)
    (x**3).backward(create_graph=True)
    assert x.grad is not None and x.grad.requires_grad
    (second,) = grad(x.grad, x)
    np.testing.assert_allclose(np.asarray(second), [12])


def test_only_the_inputs_get_gradients(engine: Engine) -> None:
    x, y = [alpha.tensor([2.0], engine=engine, requires_grad=True) for _ in range(2)]
    (x * y).backward(inputs=[y])
    assert x.grad is None
    np.testing.assert_allclose(np.asarray(y.grad), [2])
    with pytest.raises(GraphError, match=r"^\[grad\] expected inputs that the outputs depend on"):
        grad(x * 2, y)
    assert grad(x * 2, y, allow_unused=True) == (None,)


class Scaled(alpha.Function):
    """PyTorch's form."""

    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        y = x.exp() * factor
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        return dy * y, None


class Pair(alpha.Function):
    """PyTorch's form with the context apart; the second result may get no gradient."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, product: Any, total: Any) -> Any:
        x, y = ctx.saved_tensors
        assert total is not None
        return product * y + total, product * x + total


class Once(Scaled):
    """One whose gradient has none."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * ctx.saved_tensors[0], None


def test_pytorchs_form_of_functions(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 3, 2))
    assert gradcheck(lambda x: Scaled.apply(x, 2.0), x)
    assert gradgradcheck(lambda x: Scaled.apply(x, 2.0), x)
    assert gradgradcheck(Pair.apply, x, y)
    assert gradcheck(lambda x, y: Pair.apply(x, y)[0], x, y)
    t = alpha.tensor(x, requires_grad=True)
    (slope,) = grad(Once.apply(t, 1.0).sum(), t, create_graph=True)
    with pytest.raises(GraphError, match="once_differentiable"):
        slope.sum().backward()


# -- what is made of them --------------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
def test_functional_is_pytorchs(rng: np.random.Generator) -> None:
    import torch
    from torch.autograd import functional as theirs

    arrays = rng.standard_normal((3, 2)), rng.standard_normal(2)
    vectors = rng.standard_normal((3, 2)), rng.standard_normal(2)
    rows = rng.standard_normal(3), rng.standard_normal(())

    def several(x: Any, y: Any) -> Any:
        return (x * y).exp().sum(1), (x**3).sum() * y.sum()

    def one(x: Any, y: Any) -> Any:
        return (x * y).exp().sum() * (x**2).sum()

    for name, function, given in (
        ("jacobian", several, ()),
        ("hessian", one, ()),
        ("vjp", several, (rows,)),
        ("jvp", several, (vectors,)),
        ("vhp", one, (vectors,)),
        ("hvp", one, (vectors,)),
    ):
        found = [
            getattr(side, name)(function, *[tuple(map(make, x)) for x in (arrays, *given)])
            for side, make in ((functional, alpha.tensor), (theirs, torch.tensor))
        ]
        for a, b in zip(*map(_flat, found), strict=True):
            np.testing.assert_allclose(np.asarray(a.detach()), b.detach().numpy(), rtol=1e-10, err_msg=name)


def test_vmap_of_functions_that_draw(engine: Engine) -> None:
    x = alpha.zeros(4, 3, engine=engine)

    def noisy(row: alpha.Tensor) -> alpha.Tensor:
        return row + alpha.rand(3, engine=engine)

    different = np.asarray(func.vmap(noisy, randomness="different")(x))
    assert len(np.unique(different, axis=0)) == 4
    same = np.asarray(func.vmap(noisy, randomness="same", chunk_size=2)(x))
    assert len(np.unique(same, axis=0)) == 1
    for options in ({}, {"randomness": "none"}, {"chunk_size": 0}, {"chunk_size": "all"}):
        with pytest.raises(ArgumentError, match=r"^\[vmap\]"):
            func.vmap(noisy, **options)(x)  # type: ignore[arg-type]


def _flat(value: Any) -> list[Any]:
    return [x for part in value for x in _flat(part)] if isinstance(value, tuple) else [value]


def test_func(engine: Engine) -> None:
    x = alpha.tensor(np.arange(6.0).reshape(3, 2), engine=engine)
    cubes = func.vmap(func.grad(lambda row: (row**3).sum()))(x)
    np.testing.assert_allclose(np.asarray(cubes), 3 * np.asarray(x) ** 2)
    fourth = func.grad(func.grad(lambda t: t**4))(alpha.tensor(2.0, engine=engine))
    assert fourth.item() == 48
    layer = nn.Linear(2, 2).to(engine)
    given = {"weight": alpha.eye(2, engine=engine), "bias": alpha.zeros(2, engine=engine)}
    before = np.array(layer.weight.detach())
    np.testing.assert_allclose(np.asarray(func.functional_call(layer, given, (x.float(),))), np.asarray(x))
    np.testing.assert_array_equal(np.asarray(layer.weight.detach()), before)
    with pytest.raises(ArgumentError, match=r"^\[functional_call\]"):
        func.functional_call(layer, {"other": x}, (x.float(),))


def test_checkpoint_gives_the_same_bits(engine: Engine, rng: np.random.Generator) -> None:
    alpha.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)).to(engine)
    x = alpha.tensor(rng.standard_normal((5, 4)).astype(np.float32), engine=engine, requires_grad=True)

    def gradients(kept: bool) -> list[Array]:
        alpha.manual_seed(3)
        outside = x * 2  # read by the function beside its argument
        argument = outside * 1

        def block(z: Any) -> Any:
            return net(z) + outside.sum()

        y = block(argument) if kept else alpha.checkpoint(block, argument)
        return [np.array(g) for g in grad((y**2).sum(), (x, *net.parameters()))]

    for ours, plain in zip(gradients(False), gradients(True), strict=True):
        np.testing.assert_array_equal(ours, plain)
    assert alpha.checkpoint(net, x.detach()).requires_grad  # for its parameters do


def test_checkpoint_saves_memory(engine: Engine) -> None:
    x = alpha.ones(1 << 16, engine=engine, requires_grad=True)

    def block(x: Any) -> Any:
        for _ in range(8):
            x = x.tanh()
        return x

    held = []
    for call in (block, lambda x: alpha.checkpoint(block, x)):
        before = engine.memory.in_use
        y = call(x)
        held.append(engine.memory.in_use - before)
        y.sum().backward()
    assert held[1] <= x.nbytes * 1.1 < held[0] / 7


def test_anomaly_mode_names_the_line(engine: Engine) -> None:
    x = alpha.tensor([-1.0, 4.0], engine=engine, requires_grad=True)
    with alpha.autograd.detect_anomaly():
        loss = alpha.sqrt(x).sum()  # the line that makes the nan
        with pytest.raises(NumericsError, match=r"of sqrt, which was called here:\n(.|\n)*the line that makes the nan"):
            loss.backward()
    alpha.sqrt(x).sum().backward()


def test_inference_mode(engine: Engine) -> None:
    x = alpha.tensor([1.0], engine=engine, requires_grad=True)
    with alpha.inference_mode():
        assert not (x * 2).requires_grad
        assert alpha.is_inference_mode_enabled()
        with alpha.inference_mode(False):
            assert (x * 2).requires_grad
    assert not alpha.inference_mode()(lambda: x * 2)().requires_grad
    assert not alpha.inference_mode(lambda: x * 2)().requires_grad
    assert (x * 2).requires_grad


def test_hook_after_accumulation(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], engine=engine, requires_grad=True)
    seen: list[Any] = []
    handle = x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    (x * x + x).sum().backward()
    (x * 1).sum().backward()
    assert seen == [[3, 5], [4, 6]]
    handle.remove()
    (x * 1).sum().backward()
    assert len(seen) == 2


def test_other_threads_walk_without_a_graph() -> None:
    """A walk that creates a graph on one thread changes nothing on another."""
    x = alpha.tensor([2.0], requires_grad=True)
    found: list[bool] = []

    class Paused(alpha.Function):
        def forward(self, x: Any) -> Any:
            self.save(x)
            return x * 1

        def backward(self, dy: Any) -> Any:
            worker = threading.Thread(target=lambda: found.append(grad((y**2).sum(), y)[0].requires_grad))
            y = alpha.tensor([1.0], requires_grad=True)
            worker.start()
            worker.join()
            return dy * self.saved[0]

    (slope,) = grad(Paused.apply(x).sum(), x, create_graph=True)
    assert slope.requires_grad and found == [False]
