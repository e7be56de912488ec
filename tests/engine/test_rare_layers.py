"""Layers that few networks have, and options that few layers are given, beside PyTorch's from equal weights."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.testing import gradcheck, gradgradcheck

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}

LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("BatchNorm1d", (3,), {"bias": False}, (4, 3)),
    ("BatchNorm2d", (3,), {"bias": False}, (2, 3, 4, 5)),
    ("BatchNorm3d", (3,), {"bias": False, "track_running_stats": False}, (2, 3, 2, 3, 2)),
    ("GroupNorm", (2, 4), {"bias": False}, (2, 4, 3)),
    ("InstanceNorm1d", (3,), {"affine": True, "bias": False}, (2, 3, 5)),
    ("InstanceNorm2d", (3,), {"affine": False, "bias": True}, (2, 3, 5, 2)),
    ("LazyBatchNorm1d", (), {"bias": False}, (4, 3)),
    ("LazyBatchNorm3d", (), {}, (2, 3, 2, 3, 2)),
    ("LazyInstanceNorm1d", (), {}, (2, 3, 4)),
    ("LazyInstanceNorm2d", (), {"bias": False}, (2, 3, 4, 5)),
    ("LazyInstanceNorm3d", (), {"track_running_stats": False}, (2, 3, 4, 3, 2)),
    ("LazyConv1d", (4, 3), {"padding": 1, "padding_mode": "circular"}, (2, 3, 5)),
    ("LazyConv2d", (4, 3), {"padding": 1, "padding_mode": "reflect"}, (2, 3, 5, 6)),
    ("LazyConvTranspose2d", (4, 3), {"padding_mode": "zeros"}, (2, 3, 3, 2)),
    ("Softmax2d", (), {}, (2, 3, 4, 5)),
    ("Softmax2d", (), {}, (3, 4, 5)),
    ("RReLU", (0.1, 0.4), {}, (3, 4)),
    ("Hardtanh", (), {"min_value": -0.3, "max_value": 0.4}, (3, 4)),
]


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS)
def test_layers_match_pytorch(
    engine: Engine,
    rng: np.random.Generator,
    name: str,
    args: tuple[Any, ...],
    options: dict[str, Any],
    shape: tuple[int, ...],
) -> None:
    import torch

    theirs = getattr(torch.nn, name)(*args, **options)
    with alpha.set_image_layout("NCHW"):
        ours = getattr(nn, name)(*args, **options)
    x = rng.normal(size=shape)
    if name.startswith("Lazy"):
        theirs(torch.tensor(x, dtype=torch.float32))
        ours(alpha.tensor(x, dtype="float32"))
        assert type(ours).__name__ == type(theirs).__name__
    ours, theirs = ours.to(engine).double(), theirs.double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    if name == "RReLU":
        ours, theirs = ours.eval(), theirs.eval()
    assert repr(ours) == repr(theirs)
    a, b = alpha.tensor(x, engine=engine, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = ours(a), theirs(b)
    np.testing.assert_allclose(np.asarray(y.detach()), z.detach().numpy(), **TOLERANCE)
    (y**3).sum().backward()
    (z**3).sum().backward()
    pairs = [(a, b), *zip(ours.parameters(), theirs.parameters(), strict=True)]
    for one, other in pairs:
        np.testing.assert_allclose(np.asarray(one.grad), other.grad.numpy(), **TOLERANCE)
    for (key, one), other in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        np.testing.assert_allclose(np.asarray(one), other.numpy(), **TOLERANCE, err_msg=key)


def test_layers_with_channels_last() -> None:
    x = alpha.randn(2, 3, 4, 5)
    assert nn.LazyInstanceNorm2d()(x).shape == x.shape
    alone = nn.LazyInstanceNorm2d()
    np.testing.assert_allclose(np.asarray(alone(x[0]).detach()), np.asarray(nn.InstanceNorm2d(5)(x[0])), 1e-5, 1e-6)
    assert alone.num_features == 5
    with alpha.set_image_layout("NCHW"):
        first = nn.LazyInstanceNorm2d()
        first(x[0])
        assert first.num_features == 3
    np.testing.assert_allclose(np.asarray(nn.Softmax2d()(x).sum(-1)), np.ones((2, 3, 4)), 1e-6)


def test_the_first_channel_leaves_the_windows(rng: np.random.Generator) -> None:
    """As by the formula, which PyTorch's layer departs from; its gradient is not that of its own result."""
    x = rng.normal(size=(1, 1, 1, 6))
    found = np.asarray(nn.CrossMapLRN2d(3, 0.3, 0.5, 1.0)(alpha.tensor(x)))[0, 0, 0]
    line = np.pad(x[0, 0, 0] ** 2, 1)
    expected = x[0, 0, 0] / np.sqrt(1 + 0.1 * (line[:-2] + line[1:-1] + line[2:]))
    np.testing.assert_allclose(found, expected, 1e-12)
    even = np.asarray(nn.CrossMapLRN2d(4, 0.4, 0.5, 1.0)(alpha.tensor(x)))[0, 0, 0]
    np.testing.assert_allclose(even, expected, 1e-12)
    assert gradcheck(nn.CrossMapLRN2d(3, 0.3), x)


def test_random_slopes(rng: np.random.Generator) -> None:
    layer = nn.RReLU(0.2, 0.4)
    x = -alpha.ones(1000)
    slopes = -np.asarray(layer(x))
    assert 0.2 <= slopes.min() < 0.22 and 0.38 < slopes.max() <= 0.4
    np.testing.assert_allclose(-np.asarray(layer.eval()(x)), 0.3, 1e-6)


ADAPTIVE = [((2, 5), 2.0, False), ((3,), 4.0, True), ((2, 4, 7), 1.5, False)]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("cutoffs", "power", "bias"), ADAPTIVE)
def test_adaptive_softmax_matches_pytorch(
    engine: Engine, rng: np.random.Generator, cutoffs: tuple[int, ...], power: float, bias: bool
) -> None:
    import torch

    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 10, list(cutoffs), power, bias).double()
    ours = nn.AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs, power, bias).to(engine).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    x, classes = rng.normal(size=(9, 8)), rng.integers(0, 10, 9)
    classes[0] = 0  # a class that the head scores itself
    a, b = alpha.tensor(x, engine=engine, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = ours(a, alpha.tensor(classes, engine=engine)), theirs(b, torch.tensor(classes))
    np.testing.assert_allclose(np.asarray(y.output.detach()), z.output.detach().numpy(), **TOLERANCE)
    assert y.loss.item() == pytest.approx(z.loss.item(), rel=1e-12)
    y.loss.backward()
    z.loss.backward()
    for one, other in [(a, b), *zip(ours.parameters(), theirs.parameters(), strict=True)]:
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            np.testing.assert_allclose(np.asarray(one.grad), other.grad.numpy(), **TOLERANCE)
    np.testing.assert_allclose(np.asarray(ours.log_prob(a).detach()), theirs.log_prob(b).detach().numpy(), **TOLERANCE)
    np.testing.assert_array_equal(np.asarray(ours.predict(a)), theirs.predict(b).numpy())
    alone = ours(a[0], alpha.tensor(int(classes[0]), engine=engine))
    assert alone.output.shape == ()
    assert alone.loss.item() == pytest.approx(-y.output[0].item(), rel=1e-12)


def test_adaptive_softmax_has_second_gradients(rng: np.random.Generator) -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4], 2.0).double()
    classes = alpha.tensor([0, 5, 3])
    x = rng.normal(size=(3, 4))
    assert gradcheck(lambda x: layer(x, classes).output, x)
    assert gradgradcheck(lambda x: layer(x, classes).output, x)


def test_adaptive_softmax_refuses_what_does_not_fit() -> None:
    for cutoffs in ([], [0, 2], [3, 3], [4, 2], [6], 2):
        with pytest.raises(ArgumentError, match="cutoffs"):
            nn.AdaptiveLogSoftmaxWithLoss(4, 6, cutoffs)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="div_value"):
        nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4])
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4], 2.0)
    x = alpha.randn(3, 4)
    with pytest.raises(ArgumentError, match=r"classes in 0\.\.5"):
        layer(x, alpha.tensor([0, 6, 1]))
    with pytest.raises(DtypeError, match="class indices"):
        layer(x, alpha.randn(3))
    with pytest.raises(ShapeError, match="target"):
        layer(x, alpha.tensor([0, 1]))
    with pytest.raises(ShapeError, match=r"\(N, 4\)"):
        layer.predict(alpha.randn(4))


def test_older_names_warn() -> None:
    with pytest.warns(FutureWarning, match="use min_val"):
        nn.Hardtanh(min_value=-2.0)
    with pytest.warns(FutureWarning, match="use NLLLoss"):
        layer = nn.NLLLoss2d(reduction="sum")
    assert layer.reduction == "sum" and isinstance(layer, nn.NLLLoss)
    with pytest.raises(ArgumentError, match="below max_val"):
        nn.Hardtanh(1.0, 0.0)
    with pytest.raises(ArgumentError, match="lower <= upper"):
        nn.RReLU(0.4, 0.1)
    with pytest.raises(ShapeError, match="4 axes"):
        nn.Softmax2d()(alpha.randn(3, 4))


# -- buffers -------------------------------------------------------------------------------------------------------


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Buffer(alpha.zeros(2))
        self.seen = nn.Buffer([1.0, 2.0], persistent=False)
        self.weight = nn.Parameter(alpha.ones(1))


def test_buffers_are_registered_by_assignment() -> None:
    layer = Counter()
    assert list(layer.state_dict()) == ["weight", "count"]
    assert [name for name, _ in layer.named_buffers()] == ["count", "seen"]
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    other = copy.deepcopy(layer)
    assert isinstance(other.seen, nn.Buffer) and not other.seen.persistent
    assert not pickle.loads(pickle.dumps(layer.seen)).persistent
    assert layer.double().seen.dtype == alpha.float64
    layer.seen = nn.Buffer(alpha.zeros(1))  # persistence is the newest buffer's
    assert list(layer.state_dict()) == ["weight", "count", "seen"]
    layer.count = alpha.ones(2)  # a plain tensor takes a buffer's place
    assert list(layer.state_dict()) == ["weight", "count", "seen"]
    layer.count = nn.Parameter(alpha.ones(2))
    assert [name for name, _ in layer.named_buffers()] == ["seen"]
    with pytest.raises(ArgumentError, match="expected a Parameter"):
        layer.weight = nn.Buffer(alpha.ones(1))
    assert nn.Buffer().shape == (0,)


def test_a_buffer_without_a_shape() -> None:
    layer = nn.Module()
    layer.later = nn.UninitializedBuffer(persistent=False)
    assert list(layer.state_dict()) == []
    layer.later.materialize((2, 3))
    assert type(layer.later) is nn.Buffer and layer.later.shape == (2, 3) and not layer.later.persistent
    assert [name for name, _ in layer.named_buffers()] == ["later"]


def test_a_cell_of_ones_own() -> None:
    class Cell(nn.RNNCellBase):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x @ self.weight_ih.T

    cell = Cell(3, 4, bias=True, num_chunks=2)
    assert cell.weight_ih.shape == (8, 3) and cell.weight_hh.shape == (8, 4) and cell(alpha.ones(2, 3)).shape == (2, 8)
