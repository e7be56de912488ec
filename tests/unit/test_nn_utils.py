"""nn.utils and the lazy layers beside PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import AlphaError, ArgumentError, CheckpointError, ShapeError
from alpha.nn import utils
from alpha.nn.utils import parametrizations, parametrize

Array = np.ndarray[Any, Any]
TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def doubles(*shape: int) -> Array:
    return np.random.default_rng(1).normal(size=shape)


# -- gradients and vectors ---------------------------------------------------------------------------------------


@pytest.mark.needs("torch")
@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_norms_of_gradients(norm_type: float) -> None:
    import torch

    arrays = [doubles(3, 2), doubles(4)]
    ours, theirs = [alpha.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]
    total = utils.get_total_norm(ours, norm_type)
    expected = torch.nn.utils.get_total_norm(theirs, norm_type)
    assert total.item() == pytest.approx(expected.item(), rel=1e-12)
    params, others = [nn.Parameter(a) for a in arrays], [torch.nn.Parameter(torch.tensor(a)) for a in arrays]
    for lib, listed in ((alpha, params), (torch, others)):
        for p, a in zip(listed, arrays, strict=True):
            p.grad = lib.tensor(a)  # type: ignore[attr-defined]
    utils.clip_grads_with_norm_(params, 0.5, total)
    torch.nn.utils.clip_grads_with_norm_(others, 0.5, expected)
    for p, q in zip(params, others, strict=True):
        np.testing.assert_allclose(p.grad, q.grad, rtol=1e-6)


def test_parameters_become_a_vector_and_return() -> None:
    net = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.shape == (8,) and vector.requires_grad
    utils.vector_to_parameters(alpha.arange(8).float(), net.parameters())
    assert net.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and net.bias is not None and net.bias.tolist() == [6, 7]
    with pytest.raises(ShapeError, match="8 elements"):
        utils.vector_to_parameters(alpha.zeros(9), net.parameters())
    with pytest.raises(ArgumentError, match="at least one"):
        utils.parameters_to_vector([])


# -- weight norm and parametrizations ----------------------------------------------------------------------------


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("new", [False, True])
def test_weight_norm_matches_pytorch(new: bool, dim: int | None) -> None:
    import torch

    theirs, ours = torch.nn.Linear(3, 4).double(), nn.Linear(3, 4).double()
    ours.load_state_dict(theirs.state_dict())
    if new:
        parametrizations.weight_norm(ours, dim=dim)
        torch.nn.utils.parametrizations.weight_norm(theirs, dim=dim)
    else:
        utils.weight_norm(ours, dim=dim)
        torch.nn.utils.weight_norm(theirs, dim=dim)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    for key, value in ours.state_dict().items():
        assert value.shape == tuple(theirs.state_dict()[key].shape)
    x = doubles(5, 3)
    y, expected = ours(alpha.tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(y.detach(), expected.detach(), **TOLERANCE)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    grads = {name: p.grad for name, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        np.testing.assert_allclose(p.grad, grads[name], **TOLERANCE)
    copy.deepcopy(ours)(alpha.tensor(x))
    before = y.detach()
    if new:
        parametrize.remove_parametrizations(ours, "weight")
    else:
        utils.remove_weight_norm(ours)
    assert type(ours) is nn.Linear and isinstance(ours.weight, nn.Parameter)
    assert set(ours.state_dict()) == {"weight", "bias"}
    np.testing.assert_allclose(ours(alpha.tensor(x)).detach(), before, **TOLERANCE)


@pytest.mark.needs("torch")
def test_spectral_parametrization_matches_pytorch() -> None:
    import torch

    theirs, ours = torch.nn.Linear(3, 4).double(), nn.Linear(3, 4).double()
    ours.load_state_dict(theirs.state_dict())
    parametrizations.spectral_norm(ours)
    torch.nn.utils.parametrizations.spectral_norm(theirs)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x = doubles(5, 3)
    for _ in range(2):
        y, expected = ours(alpha.tensor(x)), theirs(torch.tensor(x))
        np.testing.assert_allclose(y.detach(), expected.detach(), **TOLERANCE)
    y.sum().backward()
    expected.sum().backward()
    original = ours.get_parameter("parametrizations.weight.original")
    np.testing.assert_allclose(original.grad, theirs.parametrizations.weight.original.grad, **TOLERANCE)
    conv = parametrizations.spectral_norm(nn.Conv2d(2, 3, 3))
    for _ in range(30):
        weight = conv.weight.detach()
    assert np.linalg.norm(np.asarray(weight).transpose(0, 3, 1, 2).reshape(3, -1), 2) == pytest.approx(1, rel=1e-4)


class Symmetric(nn.Module):
    """The symmetric matrix of an upper triangle."""

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        upper = alpha.tensor(np.triu(np.ones(x.shape, np.float32)))
        return x * upper + (x * upper).T - x * alpha.eye(x.shape[0])

    def right_inverse(self, x: alpha.Tensor) -> alpha.Tensor:
        return x * alpha.tensor(np.triu(np.ones(x.shape, np.float32)))


class Doubled(nn.Module):
    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return x * 2

    def right_inverse(self, x: alpha.Tensor) -> alpha.Tensor:
        return x / 2


def test_parametrizations_follow_each_other_and_are_set_and_removed() -> None:
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    before = layer.weight.detach()
    assert (before == before.T).all()
    parametrize.register_parametrization(layer, "weight", Doubled())
    np.testing.assert_allclose(layer.weight.detach(), before, rtol=1e-6)
    wanted = alpha.tensor(np.eye(3, dtype=np.float32) * 4)
    layer.weight = wanted  # type: ignore[assignment]
    np.testing.assert_allclose(layer.weight.detach(), wanted, rtol=1e-6)
    assert parametrize.is_parametrized(layer) and not parametrize.is_parametrized(layer, "bias")
    assert "ParametrizationList" in repr(layer)
    layer(alpha.ones(1, 3)).sum().backward()
    original = layer.get_parameter("parametrizations.weight.original")
    assert original.grad is not None
    twin = copy.deepcopy(layer)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert type(layer) is nn.Linear and layer.weight is original
    assert type(twin).__name__ == "ParametrizedLinear" and twin.weight.shape == (3, 3)


def test_misused_parametrizations_say_so() -> None:
    layer = nn.Linear(3, 2)
    with pytest.raises(ArgumentError, match="parameter or buffer of Linear, got 'nothing'"):
        parametrize.register_parametrization(layer, "nothing", Doubled())
    with pytest.raises(ArgumentError, match="expected a Module"):
        parametrize.register_parametrization(layer, "weight", lambda x: x)  # type: ignore[arg-type]

    class Row(nn.Module):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x[0]

    with pytest.raises(ShapeError, match="unsafe=True"):
        parametrize.register_parametrization(layer, "weight", Row())
    assert type(layer) is nn.Linear and layer.weight.shape == (2, 3)
    parametrize.register_parametrization(layer, "weight", Row(), unsafe=True)
    assert layer.weight.shape == (3,)
    with pytest.raises(ArgumentError, match="parametrized tensor"):
        parametrize.remove_parametrizations(layer, "bias")
    with pytest.raises(ArgumentError, match="weight norm of weight"):
        utils.remove_weight_norm(nn.Linear(2, 2))
    with pytest.raises(ArgumentError, match="not normalised yet"):
        utils.weight_norm(utils.weight_norm(nn.Linear(2, 2)))


# -- fusion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("transpose", [False, True])
def test_a_convolution_takes_its_normalisation(transpose: bool, layout: str) -> None:
    with alpha.set_image_layout(layout):
        conv = (nn.ConvTranspose2d if transpose else nn.Conv2d)(3, 4, 3, bias=transpose).double()
        bn = nn.BatchNorm2d(4).double()
        x = alpha.tensor(doubles(2, 5, 5, 3) if layout == "NHWC" else doubles(2, 3, 5, 5))
        bn(conv(x) * 3)
        conv.eval()
        bn.eval()
        fused = utils.fuse_conv_bn_eval(conv, bn, transpose)
        np.testing.assert_allclose(fused(x).detach(), bn(conv(x)).detach(), **TOLERANCE)
    with pytest.raises(ArgumentError, match="evaluation mode"):
        utils.fuse_conv_bn_eval(conv.train(), bn, transpose)
    with pytest.raises(ArgumentError, match="a convolution, transposed if"):
        utils.fuse_conv_bn_eval(conv, bn, not transpose)


def test_a_linear_takes_its_normalisation() -> None:
    linear, bn = nn.Linear(3, 4).double(), nn.BatchNorm1d(4).double()
    x = alpha.tensor(doubles(6, 3))
    bn(linear(x) * 2)
    fused = utils.fuse_linear_bn_eval(linear.eval(), bn.eval())
    np.testing.assert_allclose(fused(x).detach(), bn(linear(x)).detach(), **TOLERANCE)


# -- lazy layers -------------------------------------------------------------------------------------------------

LAZY: list[tuple[str, str, tuple[Any, ...], tuple[int, ...], int]] = [
    ("LazyLinear", "Linear", (4,), (2, 3), 3),
    ("LazyConv1d", "Conv1d", (4, 3), (2, 6, 3), 3),
    ("LazyConv2d", "Conv2d", (4, 3, 1, 1, 1, 2), (2, 6, 5, 4), 4),
    ("LazyConv3d", "Conv3d", (4, 2), (2, 4, 5, 3, 2), 2),
    ("LazyConvTranspose1d", "ConvTranspose1d", (4, 3), (2, 6, 3), 3),
    ("LazyConvTranspose2d", "ConvTranspose2d", (4, 3), (2, 6, 5, 4), 4),
    ("LazyConvTranspose3d", "ConvTranspose3d", (4, 2), (2, 4, 5, 3, 2), 2),
    ("LazyBatchNorm1d", "BatchNorm1d", (), (5, 3), 3),
    ("LazyBatchNorm2d", "BatchNorm2d", (), (2, 6, 5, 4), 4),
    ("LazyBatchNorm3d", "BatchNorm3d", (), (2, 4, 5, 3, 2), 2),
]


@pytest.mark.parametrize("loads", [False, True])
@pytest.mark.parametrize(("name", "plain", "args", "shape", "inputs"), LAZY)
def test_lazy_layers_take_their_sizes(
    name: str, plain: str, args: tuple[Any, ...], shape: tuple[int, ...], inputs: int, loads: bool
) -> None:
    kind = getattr(nn, plain)
    layer, x = getattr(nn, name)(*args).double(), alpha.tensor(doubles(*shape))
    assert all(isinstance(p, nn.UninitializedParameter) for p in layer.parameters())
    known = kind(inputs, *args).double()
    parameters = list(layer.parameters())
    if loads:
        layer.load_state_dict(known.state_dict())
    y = layer(x)
    assert type(layer) is kind and list(layer.parameters()) == parameters and layer._hooks.before == {}
    assert {key: (v.shape, v.dtype) for key, v in layer.state_dict().items()} == {
        key: (v.shape, v.dtype) for key, v in known.state_dict().items()
    }
    assert repr(layer) == repr(known)
    if loads:
        np.testing.assert_array_equal(y.detach(), known(x).detach())
    y.sum().backward()
    assert all(type(p) is nn.Parameter and p.grad is not None and abs(p.detach()).max() < 2 for p in layer.parameters())


@pytest.mark.needs("torch")
def test_lazy_layers_look_like_pytorchs() -> None:
    import torch

    for name, _, args, _, _ in LAZY:
        ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
        assert repr(ours) == repr(theirs)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert repr(next(ours.parameters())) == repr(next(theirs.parameters())) == "<UninitializedParameter>"


def test_lazy_layers_refuse_what_they_cannot_take() -> None:
    with pytest.raises(ShapeError, match="groups=2 divide"):
        nn.LazyConv2d(4, 3, groups=2)(alpha.zeros(1, 5, 5, 3))
    with pytest.raises(ShapeError, match="4 axes"):
        nn.LazyConv2d(4, 3)(alpha.zeros(5, 3))
    with pytest.raises(ShapeError, match="expected an input"):
        nn.LazyBatchNorm2d()(alpha.zeros(5, 3))
    layer = nn.LazyLinear(4)
    with pytest.raises(CheckpointError):
        nn.Linear(2, 4).load_state_dict(layer.state_dict())
    twin = copy.deepcopy(layer)
    assert twin(alpha.zeros(1, 2)).shape == (1, 4) and isinstance(layer, nn.LazyLinear)
    buffer = nn.UninitializedBuffer()
    buffer.materialize((2, 3), dtype=alpha.float64)
    assert type(buffer) is nn.Buffer and buffer.shape == (2, 3) and buffer.dtype == alpha.float64


@pytest.mark.parametrize(
    "call",
    [
        lambda: utils.weight_norm(nn.Linear(2, 2), None),  # type: ignore[arg-type]
        lambda: utils.weight_norm(nn.Linear(2, 2), dim=np.zeros(3)),  # type: ignore[arg-type]
        lambda: utils.remove_weight_norm(None),  # type: ignore[type-var]
        lambda: parametrizations.weight_norm("x"),  # type: ignore[type-var]
        lambda: parametrizations.spectral_norm(nn.Linear(2, 2), eps=None),  # type: ignore[arg-type]
        lambda: parametrizations.spectral_norm(nn.Linear(2, 2), dim="x"),  # type: ignore[arg-type]
        lambda: parametrize.register_parametrization(None, "weight", nn.ReLU()),  # type: ignore[arg-type]
        lambda: parametrize.register_parametrization(nn.Linear(2, 2), [], nn.ReLU()),  # type: ignore[arg-type]
        lambda: utils.fuse_conv_bn_eval(nn.Conv2d(1, 1, 1).eval(), None),  # type: ignore[arg-type]
        lambda: nn.Linear(1, 1).get_submodule(3),  # type: ignore[arg-type]
        lambda: nn.Linear(1, 1).get_parameter(None),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_refused(call: Any) -> None:
    with pytest.raises(AlphaError, match=r"^\[\w+\] expected"):
        call()
