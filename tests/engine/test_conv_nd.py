"""Convolutions of one and three axes against float64 from the definition, PyTorch, and the count of their products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
from alpha import functions as F
from alpha import nn
from alpha.cpu import planner
from alpha.cpu.convolution import MACS
from alpha.cpu.engine import CPUEngine
from alpha.engine import Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.functions.conv_nd import VOLUME_ORDER
from alpha.geometry import VolumeGeometry, transposed_input
from tests import oracles
from tests.engine.checks import gradcheck_on
from tests.tiers import FLOATS

Array = np.ndarray[Any, Any]

# Relative to the largest sum of magnitudes: each of K products and sums is rounded once, so K roundings bound the
# error and some sqrt(K) are expected; K is below 1000 here. Relative to the result itself no bound holds, as its terms
# may cancel.
ROUNDINGS = 32


@dataclass(frozen=True)
class Case:
    """One convolution problem of one or three axes."""

    n: int
    size: tuple[int, ...]
    channels: tuple[int, int]
    filter: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def parameters(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
        return self.stride, self.padding, self.dilation, self.groups

    @property
    def functions(self) -> tuple[Any, Any]:
        """The convolution and the transposed one."""
        return (F.conv1d, F.conv_transpose1d) if len(self.size) == 1 else (F.conv3d, F.conv_transpose3d)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Single elements, stride over filter, padding over half of it, dilation, each axis its own."""
    axes = draw(st.sampled_from([1, 3]))
    several = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * axes))  # noqa: E731
    filter, dilation, padding = several(1, 4), several(1, 3), several(0, 3)
    least = [max(1, (f - 1) * d + 1 - 2 * p) for f, d, p in zip(filter, dilation, padding, strict=True)]
    size = tuple(low + more for low, more in zip(least, several(0, 4), strict=True))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels = tuple(groups * draw(st.sampled_from([1, 2, 5, 16, 17])) for _ in range(2))
    return Case(draw(st.sampled_from([1, 2, 3, 5])), size, channels, filter, several(1, 4), padding, dilation, groups)


def draw_arrays(dtype: Any, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def assert_close(actual: Any, expected: Array, magnitudes: Array) -> None:
    """Within the roundings of the actual dtype."""
    array = np.asarray(actual)
    assert array.shape == expected.shape
    bound = ROUNDINGS * np.finfo(array.dtype).eps * max(float(magnitudes.max()), 1e-30)
    assert np.abs(array.astype(np.float64) - expected).max() <= bound


def check(engine: Engine, case: Case, dtype: Any, ordered: bool) -> None:
    """Forward, dx, dw and dbias of a convolution."""
    (ic, oc), parameters = case.channels, case.parameters
    x, w, b = draw_arrays(dtype, (case.n, *case.size, ic), (oc, *case.filter, ic // case.groups), (oc,))
    tensors = [alpha.tensor(array, requires_grad=True, engine=engine) for array in (x, w, b)]
    source = tensors[0].contiguous(VOLUME_ORDER) if ordered and x.ndim == 5 else tensors[0]
    y = case.functions[0](source, *tensors[1:], *parameters)
    assert_close(
        y, oracles.convolution(x, w, *parameters) + b, oracles.convolution(abs(x), abs(w), *parameters) + abs(b)
    )
    (dy,) = draw_arrays(dtype, y.shape)
    y.backward(alpha.tensor(dy, engine=engine))
    expected = oracles.convolution_gradients(x, w, dy, *parameters)
    magnitudes = oracles.convolution_gradients(abs(x), abs(w), abs(dy), *parameters)
    for tensor, gradient, magnitude in zip(tensors, expected, magnitudes, strict=False):
        assert_close(tensor.grad, gradient, magnitude)
    terms = dy.astype(np.float64).reshape(-1, oc)
    assert_close(tensors[2].grad, terms.sum(0), abs(terms).sum(0))


def check_transposed(engine: Engine, case: Case, extra: int, dtype: Any) -> None:
    """The same of a transposed convolution, which is the convolution's adjoint, where its result has any element."""
    (oc, ic), (stride, padding, dilation, groups) = case.channels, case.parameters
    more = tuple(min(extra, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    size = tuple(map(transposed_input, case.size, case.filter, stride, padding, more, dilation))
    if min(size) < 1:
        return
    x, w, b = draw_arrays(dtype, (case.n, *case.size, ic), (ic, *case.filter, oc // groups), (oc,))
    tensors = [alpha.tensor(array, requires_grad=True, engine=engine) for array in (x, w, b)]
    y = case.functions[1](*tensors, stride, padding, more, groups, dilation)
    zeros = np.zeros((case.n, *size, oc))
    expected = oracles.convolution_gradients(zeros, w, x, *case.parameters)[0] + b
    assert_close(y, expected, oracles.convolution_gradients(zeros, abs(w), abs(x), *case.parameters)[0] + abs(b))
    (dy,) = draw_arrays(dtype, y.shape)
    y.backward(alpha.tensor(dy, engine=engine))
    inside = (slice(None), *map(slice, case.size))  # output padding may let the convolution have more positions
    dx = [oracles.convolution(*arrays, *case.parameters)[inside] for arrays in ((dy, w), (abs(dy), abs(w)))]
    dw = [oracles.convolution_gradients(a, w, c, *case.parameters)[1] for a, c in ((dy, x), (abs(dy), abs(x)))]
    assert_close(tensors[0].grad, *dx)
    assert_close(tensors[1].grad, *dw)
    terms = dy.astype(np.float64).reshape(-1, oc)
    assert_close(tensors[2].grad, terms.sum(0), abs(terms).sum(0))


DTYPES = st.sampled_from([np.float32, np.float64])
PICKED = [
    Case(2, (5, 6, 7), (4, 6), (3, 2, 3), (1, 1, 1), (1, 1, 0), (1, 1, 1)),
    Case(3, (7, 5, 4), (16, 32), (3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1)),  # two parts, one of two taps
    Case(20, (4, 6, 6), (16, 16), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),  # enough images for Winograd
    Case(2, (1, 3, 1), (3, 5), (5, 1, 3), (4, 1, 1), (3, 0, 2), (1, 2, 1)),  # one depth; no run covers the input
    Case(2, (9, 3, 3), (2, 2), (2, 1, 1), (4, 1, 1), (0, 0, 0), (1, 1, 1)),  # some depths are never read
    Case(1, (3, 4, 4), (4, 4), (3, 3, 3), (1, 1, 1), (3, 3, 3), (1, 1, 1)),  # outputs that see padding alone
    Case(2, (6, 4, 5), (6, 6), (2, 3, 3), (1, 2, 1), (1, 1, 1), (3, 1, 1), 6),  # depthwise
    Case(4, (50,), (24, 48), (5,), (1,), (2,), (1,)),
    Case(2, (1,), (3, 2), (3,), (2,), (1,), (1,)),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", PICKED, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_picked_configurations(engine: Engine, case: Case, dtype: Any) -> None:
    check(engine, case, dtype, ordered=True)
    check_transposed(engine, case, 1, dtype)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), dtype=DTYPES, ordered=st.booleans())
def test_random_configurations(engine: Engine, case: Case, dtype: Any, ordered: bool) -> None:
    check(engine, case, dtype, ordered)


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), extra=st.integers(0, 3), dtype=DTYPES)
def test_random_transposed_configurations(engine: Engine, case: Case, extra: int, dtype: Any) -> None:
    check_transposed(engine, case, extra, dtype)


def test_gradcheck(engine: Engine) -> None:
    x, w, b, t = draw_arrays(np.float64, (2, 3, 3, 2, 4), (6, 2, 2, 1, 2), (6,), (4, 3, 1, 2, 3))
    steps: dict[str, Any] = {"stride": (2, 1, 1), "padding": 1, "dilation": (1, 2, 1), "groups": 2}
    assert gradcheck_on(engine, lambda *a: F.conv3d(*a, **steps), x, w, b)
    assert gradcheck_on(engine, lambda *a: F.conv_transpose3d(*a, output_padding=(1, 1, 0), **steps), x, t, b)
    line, taps, other = draw_arrays(np.float64, (2, 5, 4), (6, 3, 2), (4, 3, 3))
    assert gradcheck_on(engine, lambda *a: F.conv1d(*a, 2, 1, 1, 2), line, taps, b)
    assert gradcheck_on(engine, lambda *a: F.conv_transpose1d(*a, 2, 1, 1, 2), line, other, b)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_double_used_input_are_accumulated(engine: Engine, stride: int) -> None:
    """The second convolution adds its dx into the first one's; both must be in it, once."""
    x, w = draw_arrays(np.float64, (2, 5, 4, 4, 4), (4, 3, 3, 3, 4))
    tensor, filters = alpha.tensor(x, requires_grad=True, engine=engine), alpha.tensor(w, engine=engine)
    middle = tensor * 1.0
    y = F.conv3d(middle, filters, stride=stride, padding=1)
    z = F.conv_transpose3d(middle, filters, stride=stride, padding=1)
    (y.sum() + z.sum() + F.conv3d(middle, filters, stride=stride, padding=1).sum()).backward()
    steps = (stride,) * 3, (1,) * 3, (1,) * 3, 1
    dy, dz = np.ones(y.shape), np.ones(z.shape)
    expected = 2 * oracles.convolution_gradients(x, w, dy, *steps)[0] + oracles.convolution(dz, w, *steps)
    assert tensor.grad is not None
    np.testing.assert_allclose(np.asarray(tensor.grad), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(
    "case",
    [
        Case(2, (5, 6, 7), (16, 32), (3, 2, 3), (1, 1, 1), (1, 1, 0), (1, 1, 1)),
        Case(3, (7, 4, 5), (32, 16), (4, 3, 1), (3, 2, 1), (3, 1, 0), (2, 1, 1)),
        Case(2, (3, 4, 4), (32, 32), (5, 3, 3), (1, 1, 2), (4, 2, 1), (1, 1, 1), 2),
    ],
    ids=str,
)
def test_no_zero_is_multiplied(cpu: CPUEngine, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """The multiply-adds that all 2-D operators issue add up to the products without a zero, counted one by one."""
    counts = dict.fromkeys(MACS, 0)

    def counted(name: str) -> Any:
        operator = getattr(cpu, name)

        def call(*args: Any, **options: Any) -> Any:
            result = operator(*args, **options)
            counts[name] += MACS[name]
            return result

        return call

    for name in MACS:
        monkeypatch.setattr(cpu, name, counted(name))
    ic, oc = case.channels
    x, w = draw_arrays(np.float32, (case.n, *case.size, ic), (oc, *case.filter, ic // case.groups))
    tensors = [alpha.tensor(array, requires_grad=True, engine=cpu) for array in (x, w)]
    with planner.use("images"):  # Winograd's products are fewer
        F.conv3d(*tensors, None, *case.parameters).sum().backward()
    products = oracles.products(case.size, case.filter, *case.parameters[:3])
    geometry = VolumeGeometry.make(case.size, case.filter, *case.parameters[:3])
    expected = products * case.n * ic * oc // case.groups
    assert geometry.macs(case.n, ic, oc, case.groups) == expected
    assert counts == dict.fromkeys(MACS, expected)


def test_volumes_in_order_are_not_copied(cpu: CPUEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is filled either where some tap reaches every depth."""
    x, w = draw_arrays(np.float32, (2, 4, 5, 5, 8), (8, 3, 3, 3, 8))
    source, filters = alpha.tensor(x, engine=cpu).contiguous(VOLUME_ORDER), alpha.tensor(w, engine=cpu)
    for name in ("copy", "fill"):
        monkeypatch.setattr(cpu, name, lambda *args: pytest.fail("nothing is to be copied or filled"))
    for function in (F.conv3d, F.conv_transpose3d):
        assert function(source, filters, padding=1).is_contiguous(VOLUME_ORDER)


LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Conv1d", (4, 6, 3), {}, (9,)),
    ("Conv1d", (4, 6, 5, 2, 3, 2, 2), {"bias": False}, (11,)),
    ("ConvTranspose1d", (4, 6, 3, 2, 1, 1, 2), {}, (7,)),
    ("Conv3d", (4, 6, 3), {}, (5, 4, 3)),
    ("Conv3d", (4, 6, (3, 1, 2), (2, 1, 3), (2, 0, 1), (1, 2, 1), 2), {"bias": False}, (5, 4, 6)),
    ("ConvTranspose3d", (4, 6, (3, 2, 4), (2, 1, 3), 1, (1, 0, 2)), {}, (3, 4, 2)),
]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("name", "args", "options", "size"), LAYERS)
def test_layers_match_pytorch(
    engine: Engine, name: str, args: tuple[Any, ...], options: dict[str, Any], size: tuple[int, ...]
) -> None:
    import torch

    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options)
    assert repr(ours) == repr(theirs)
    ours = ours.to(engine).to(alpha.float64)
    ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
    for key, tensor in nn.models.to_torch(ours).items():
        assert torch.equal(tensor, theirs.state_dict()[key])
    (x,) = draw_arrays(np.float64, (3, *size, 4))
    x_ours = alpha.tensor(x, requires_grad=True, engine=engine)
    other = torch.tensor(np.moveaxis(x, -1, 1), requires_grad=True)
    y, expected = ours(x_ours), theirs(other)
    (dy,) = draw_arrays(np.float64, y.shape)
    y.backward(alpha.tensor(dy, engine=engine))
    expected.backward(torch.tensor(np.moveaxis(dy, -1, 1)))
    gradients = nn.models.from_torch({key: p.grad for key, p in theirs.named_parameters()}, ours)
    pairs = [(y, np.moveaxis(expected.detach().numpy(), 1, -1)), (x_ours.grad, np.moveaxis(other.grad.numpy(), 1, -1))]
    pairs += [(parameter.grad, gradients[key]) for key, parameter in ours.named_parameters()]
    for actual, reference in pairs:
        np.testing.assert_allclose(np.asarray(actual), reference, rtol=1e-10, atol=1e-10)


@pytest.mark.needs("torch")
def test_spectral_norm_has_pytorchs_order(engine: Engine) -> None:
    """What is kept of volumes' filters is what PyTorch keeps, so that a checkpoint may be loaded."""
    import torch

    for name in ("Conv3d", "ConvTranspose3d"):
        theirs = torch.nn.utils.spectral_norm(getattr(torch.nn, name)(2, 3, (1, 2, 3)))
        ours = nn.utils.spectral_norm(getattr(nn, name)(2, 3, (1, 2, 3)).to(engine))
        ours.load_state_dict(nn.models.from_torch(theirs.state_dict(), ours))
        (x,) = draw_arrays(np.float32, (2, 3, 4, 5, 2))
        expected = theirs.eval()(torch.tensor(np.moveaxis(x, -1, 1))).detach().numpy()
        actual = ours.eval()(alpha.tensor(x, engine=engine))
        np.testing.assert_allclose(np.asarray(actual.detach()), np.moveaxis(expected, 1, -1), rtol=1e-4, atol=1e-5)


def test_same_and_valid_padding(engine: Engine) -> None:
    x = alpha.zeros((1, 4, 6, 8, 2), engine=engine)
    assert nn.Conv3d(2, 3, (3, 1, 5), padding="same", dilation=(2, 1, 1)).to(engine)(x).shape == (1, 4, 6, 8, 3)
    assert nn.Conv3d(2, 3, 3, padding="valid").to(engine)(x).shape == (1, 2, 4, 6, 3)
    w = alpha.zeros((3, 5, 2), engine=engine)
    assert F.conv1d(x[0, 0], w, padding="same").shape == (6, 8, 3)


@pytest.mark.parametrize(
    ("function", "x", "w", "options", "error", "message"),
    [
        ("conv1d", (2, 4, 4, 3), (4, 3, 3, 3), {}, ShapeError, r"\[conv1d\] expected sequences \(N, L, C\) and fil"),
        ("conv1d", (2, 9, 3), (4, 3, 2), {}, ShapeError, r"\[conv1d\] expected x.shape\[2\] == w.shape\[2\] \(inp"),
        ("conv1d", (2, 4, 3), (4, 5, 3), {}, ShapeError, r"\[conv1d\] expected a filter that fits.*extent 5 over 4"),
        ("conv1d", (2, 9, 3), (4, 3, 3), {"stride": (1, 1)}, ArgumentError, r"stride as one int, >= 1, got \(1, 1\)"),
        ("conv1d", (2, 9, 3), (4, 2, 3), {"padding": "same", "stride": 2}, ArgumentError, r"expected stride 1 for"),
        ("conv3d", (4, 4, 3), (4, 3, 3, 3), {}, ShapeError, r"\[conv3d\] expected volumes \(N, D, H, W, C\) and"),
        ("conv3d", (1, 4, 4, 4, 2), (2, 3, 3, 5, 2), {}, ShapeError, r"\[conv3d\] expected a filter that .*5 over 4"),
        ("conv3d", (1, 4, 4, 4, 2), (2, 3, 3, 3, 2), {"padding": (1, 1)}, ArgumentError, "one int or three, each >= 0"),
        ("conv3d", (1, 0, 4, 4, 2), (2, 3, 3, 3, 2), {}, ShapeError, "no empty axis but the first of x"),
        ("conv_transpose1d", (1, 4, 2), (3, 3, 2), {}, ShapeError, r"\[conv_transpose1d\] expected x.shape\[2\] == w"),
        ("conv_transpose1d", (1, 4, 2), (2, 3, 2), {"output_padding": 1}, ArgumentError, "output_padding < max"),
        ("conv_transpose3d", (1, 1, 4, 4, 2), (2, 1, 3, 3, 2), {"padding": 1}, ShapeError, "at least one element, got"),
    ],
)  # fmt: skip
def test_bad_input(
    engine: Engine, function: str, x: Any, w: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        getattr(F, function)(alpha.zeros(x, engine=engine), alpha.zeros(w, engine=engine), **options)


def test_bad_dtypes_and_layers(engine: Engine) -> None:
    x, w = alpha.zeros((1, 4, 4, 4, 3), engine=engine), alpha.zeros((4, 3, 3, 3, 3), engine=engine)
    with pytest.raises(DtypeError, match=r"\[conv3d\] .*float32 and float64"):
        F.conv3d(x, w.double())
    with pytest.raises(ArgumentError, match=r"\[Conv3d\] expected kernel_size as one or three integers >= 1, got \(3"):
        nn.Conv3d(4, 6, (3, 3))
    with pytest.raises(ArgumentError, match=r"\[ConvTranspose1d\] expected stride as one integer >= 1, got 0"):
        nn.ConvTranspose1d(4, 6, 3, 0)
