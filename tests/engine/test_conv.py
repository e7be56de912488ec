"""Convolutions against float64 from the definition: values, gradients, and the number of products they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alpha
from alpha import functions as F
from alpha.cpu import planner
from alpha.cpu.engine import CPUEngine
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.geometry import Geometry
from alpha.testing import gradcheck
from tests import oracles
from tests.tiers import FLOATS

# Sums of K products in float32, each rounded once: the error stays under K * 2^-24 of the sum of magnitudes, which here
# (K up to some thousands of terms of mixed sign, relative to the largest output) is well under the bounds.
FORWARD, GRADIENT = 5e-6, 1e-5
# In float64 the same bound is K * 2^-53.
EXACT = 1e-12


@dataclass(frozen=True)
class Case:
    """One convolution problem."""

    n: int
    size: tuple[int, int]
    channels: tuple[int, int]
    filter: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def output(self) -> tuple[int, int]:
        rows, columns = (
            oracles.output_size(*values)
            for values in zip(self.size, self.filter, self.stride, self.padding, self.dilation, strict=True)
        )
        return rows, columns


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Even and odd sizes, stride over filter, padding over half of it, one image, channels that fill no vector."""
    pair = lambda low, high: draw(st.tuples(st.integers(low, high), st.integers(low, high)))  # noqa: E731
    filter, dilation, padding = pair(1, 5), pair(1, 3), pair(0, 4)
    least = [max(1, (f - 1) * d + 1 - 2 * p) for f, d, p in zip(filter, dilation, padding, strict=True)]
    size = draw(st.tuples(st.integers(least[0], least[0] + 8), st.integers(least[1], least[1] + 8)))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    channels = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 19, 33])
    return Case(
        draw(st.sampled_from([1, 2, 3, 5, 7, 13])),
        size,
        (groups * draw(channels), groups * draw(channels)),
        filter,
        pair(1, 4),
        padding,
        dilation,
        groups,
    )


def draw_data(case: Case, dtype: Any, seed: int = 0) -> tuple[np.ndarray[Any, Any], ...]:
    """x, w, bias, dy."""
    rng = np.random.default_rng(seed)
    ic, oc = case.channels
    shapes = (
        (case.n, *case.size, ic),
        (oc, *case.filter, ic // case.groups),
        (oc,),
        (case.n, *case.output, oc),
    )
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def relative(actual: Any, expected: np.ndarray[Any, Any]) -> float:
    """Largest difference relative to the largest expected value."""
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30))


def bias_error(actual: Any, dy: np.ndarray[Any, Any]) -> float:
    """Largest error of a bias gradient beside what rounding may make of its sum.

    float32 is summed in float64, so one rounding of the sum of magnitudes is granted; float64 is summed in itself,
    where the roundings of n additions add up to about sqrt(n). Relative to the sum itself no bound holds: with one
    channel its terms may cancel.
    """
    terms = dy.astype(np.longdouble).reshape(-1, dy.shape[-1])
    errors = np.abs(np.asarray(actual).astype(np.longdouble) - terms.sum(0))
    roundings = np.sqrt(len(terms)) if dy.dtype == np.float64 else 1
    return float((errors / np.abs(terms).sum(0)).max() / np.finfo(dy.dtype).eps / roundings)


def check(engine: Engine, case: Case, dtype: Any, image_order: bool) -> None:
    """Forward, dx, dw and dbias of one case."""
    data = draw_data(case, dtype)
    x, w, b = (alpha.tensor(array, requires_grad=True, engine=engine) for array in data[:3])
    image = x.detach().contiguous(IMAGE_ORDER if image_order else None).requires_grad_()
    y = F.conv2d(image, w, b, case.stride, case.padding, case.dilation, case.groups)
    y.backward(alpha.tensor(data[3], engine=engine))
    parameters = (case.stride, case.padding, case.dilation, case.groups)
    forward, gradient = (FORWARD, GRADIENT) if dtype == np.float32 else (EXACT, EXACT)
    assert relative(y, oracles.conv2d(data[0], data[1], *parameters) + data[2]) <= forward
    expected = oracles.conv2d_gradients(data[0], data[1], data[3], *parameters)
    magnitudes = oracles.conv2d_gradients(*(np.abs(data[i]) for i in (0, 1, 3)), *parameters)
    for actual, reference, terms in zip((image.grad, w.grad), expected, magnitudes, strict=True):
        error = np.abs(np.asarray(actual, np.float64) - reference).max()
        # Where every sum's terms cancel, as they may with one channel, no bound relative to the sums holds.
        assert error <= max(gradient * np.abs(reference).max(), 4 * np.finfo(dtype).eps * terms.max())
    assert bias_error(b.grad, data[3]) <= 2


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), dtype=st.sampled_from([np.float32, np.float32, np.float64]), image_order=st.booleans())
def test_random_configurations(engine: Engine, case: Case, dtype: Any, image_order: bool) -> None:
    check(engine, case, dtype, image_order)


PICKED = [
    Case(70, (5, 4), (64, 48), (3, 3), (1, 1), (1, 1)),  # several chunks of images, whole panels
    Case(131, (3, 3), (32, 20), (3, 3), (2, 2), (1, 1)),  # parts and tails of images
    Case(2, (9, 9), (3, 64), (7, 7), (2, 2), (3, 3)),  # a stem, read in runs
    Case(3, (1, 1), (17, 16), (1, 1)),
    Case(1, (1, 1), (5, 7), (5, 5), (1, 1), (2, 2)),  # a map of one pixel inside a large filter
    Case(2, (8, 8), (4, 4), (2, 2), (3, 3)),  # stride over filter: some inputs are never read
    Case(2, (6, 6), (12, 12), (3, 3), (1, 1), (1, 1), (1, 1), 12),  # depthwise
    Case(4, (4, 4), (528, 260), (3, 3), (2, 2), (1, 1)),  # filters too large to sum in parts
    Case(2, (3, 70), (20, 20), (1, 5), (1, 2), (0, 2)),  # a wide map
]


@pytest.mark.parametrize("case", PICKED, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_picked_configurations(engine: Engine, case: Case, dtype: Any) -> None:
    check(engine, case, dtype, image_order=True)


def test_padding_is_never_read(engine: Engine) -> None:
    """Infinity right outside every row would turn to NaN if it met a zero, or to infinity if it met a weight."""
    rng = np.random.default_rng(0)
    framed = np.full((5, 8, 9, 20), np.inf, np.float32)
    framed[1:4, 2:6, 2:7, 2:18] = rng.standard_normal((3, 4, 5, 16), dtype=np.float32)
    x = alpha.tensor(framed, engine=engine)[1:4, 2:6, 2:7, 2:18]
    w = alpha.tensor(rng.standard_normal((8, 3, 3, 16), dtype=np.float32), engine=engine)
    y = F.conv2d(x, w, padding=2)
    expected = oracles.conv2d(framed[1:4, 2:6, 2:7, 2:18], w.numpy(), (1, 1), (2, 2), (1, 1), 1)
    assert relative(y, expected) <= FORWARD


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), extra=st.integers(0, 3), dtype=st.sampled_from([np.float32, np.float64]))
def test_transposed_is_the_adjoint(engine: Engine, case: Case, extra: int, dtype: Any) -> None:
    """conv_transpose2d(y, w) is the dx of a convolution whose output y has the shape of its input."""
    _, w, _, dy = draw_data(case, dtype)
    output_padding = tuple(min(extra, max(s, d) - 1) for s, d in zip(case.stride, case.dilation, strict=True))
    size = tuple(
        (o - 1) * s - 2 * p + d * (f - 1) + 1 + e
        for o, s, p, d, f, e in zip(
            case.output, case.stride, case.padding, case.dilation, case.filter, output_padding, strict=True
        )
    )
    if min(size) < 1:
        return
    channels = case.channels[0]
    bias = np.arange(channels, dtype=dtype)
    t, wt, bt = (alpha.tensor(a, requires_grad=True, engine=engine) for a in (dy, w, bias))
    y = F.conv_transpose2d(
        t,
        wt,
        bt,
        case.stride,
        case.padding,
        output_padding,
        case.groups,
        case.dilation,
    )
    image = np.zeros((case.n, *size, channels))
    # Output padding may let the convolution have more positions than dy: the rest of dy is zero there.
    grown = [
        oracles.output_size(*values)
        for values in zip(size, case.filter, case.stride, case.padding, case.dilation, strict=True)
    ]
    padded = np.zeros((case.n, *grown, dy.shape[3]))
    padded[:, : dy.shape[1], : dy.shape[2]] = dy
    parameters = (case.stride, case.padding, case.dilation, case.groups)
    expected, _ = oracles.conv2d_gradients(image, w, padded, *parameters)
    forward, gradient = (FORWARD, GRADIENT) if dtype == np.float32 else (EXACT, EXACT)
    assert y.shape == expected.shape
    assert relative(y, expected + bias) <= forward
    g = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    y.backward(alpha.tensor(g, engine=engine))
    dt = oracles.conv2d(g, w, *parameters)[:, : dy.shape[1], : dy.shape[2]]
    _, dw = oracles.conv2d_gradients(g, w, padded, *parameters)
    assert relative(t.grad, dt) <= gradient
    assert relative(wt.grad, dw) <= gradient
    assert bias_error(bt.grad, g) <= 2


def test_gradcheck(engine: Engine) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 5, 4)), rng.standard_normal((6, 3, 2, 2))
    b = rng.standard_normal(6)
    inputs = [alpha.tensor(a, dtype=alpha.float64, engine=engine) for a in (x, w, b)]
    assert gradcheck(lambda *a: F.conv2d(*a, stride=(2, 1), padding=1, dilation=(1, 2), groups=2), *inputs)
    transposed = [
        alpha.tensor(a, dtype=alpha.float64, engine=engine) for a in (x, rng.standard_normal((4, 3, 2, 3)), b)
    ]
    assert gradcheck(lambda *a: F.conv_transpose2d(*a, stride=2, padding=1, output_padding=1, groups=2), *transposed)


@pytest.mark.parametrize("activation", [None, "relu", "leaky_relu"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_residual_and_activation(engine: Engine, dtype: Any, activation: str | None) -> None:
    """act(conv(x, w) + bias + residual), whatever the residual's memory order, with all gradients."""
    case = Case(3, (6, 5), (4, 10), (3, 3), padding=(1, 1))
    x, w, b, added = draw_data(case, dtype)
    slope = {None: 1.0, "relu": 0.0, "leaky_relu": 0.2}[activation]
    whole = oracles.conv2d(x, w, case.stride, case.padding, case.dilation, 1) + b + added
    mask = np.where(whole > 0, 1, slope)
    bound = FORWARD if dtype == np.float32 else EXACT
    for order in (None, IMAGE_ORDER):
        tensors = [alpha.tensor(array, requires_grad=True, engine=engine) for array in (x, w, b, added)]
        residual = tensors[3].contiguous(order)
        y = F.conv2d(*tensors[:3], 1, 1, residual=residual, activation=activation, negative_slope=0.2)
        assert relative(y.detach(), whole * mask) <= bound
        grads = draw_data(case, dtype, seed=1)[3]
        y.backward(alpha.tensor(grads, engine=engine))
        dx, dw = oracles.conv2d_gradients(x, w, grads * mask, case.stride, case.padding, case.dilation, 1)
        for tensor, expected in zip(tensors, (dx, dw, (grads * mask).sum((0, 1, 2)), grads * mask), strict=True):
            assert tensor.grad is not None
            assert relative(tensor.grad, expected) <= 2 * bound
        assert tensors[3].grad is not tensors[0].grad


def test_activations_keep_nan_and_refuse_what_has_no_mask(engine: Engine) -> None:
    x, w = alpha.zeros((1, 3, 3, 2), engine=engine), alpha.zeros((2, 1, 1, 2), engine=engine)
    nan = alpha.full((1, 3, 3, 2), float("nan"), engine=engine)
    assert np.isnan(np.asarray(F.conv2d(x, w, residual=nan, activation="relu"))).all()
    with pytest.raises(ArgumentError, match=r'\[conv2d\] expected activation None, "relu" or "leaky_relu", got \'gelu'):
        F.conv2d(x, w, activation="gelu")
    with pytest.raises(ArgumentError, match=r"\[conv2d\] expected negative_slope >= 0, got -1: the mask"):
        F.conv2d(x, w, activation="leaky_relu", negative_slope=-1)
    with pytest.raises(ShapeError, match=r"\[conv2d\] expected a residual shaped as the result, \(1, 3, 3, 2\) of"):
        F.conv2d(x, w, residual=alpha.zeros((1, 3, 1, 2), engine=engine))


def test_gradient_of_a_double_used_input_is_accumulated(engine: Engine) -> None:
    """The second convolution adds its dx into the first one's; both must be in it, once."""
    rng = np.random.default_rng(3)
    x = alpha.tensor(rng.standard_normal((3, 5, 5, 8)), requires_grad=True, engine=engine)
    w1, w2 = (alpha.tensor(rng.standard_normal((8, 3, 3, 8)), engine=engine) for _ in range(2))
    middle = x * 1.0
    (F.conv2d(middle, w1, padding=1) + F.conv2d(middle, w2, padding=1) + middle).sum().backward()
    ones = np.ones((3, 5, 5, 8))
    expected = ones.copy()
    for w in (w1, w2):
        expected += oracles.conv2d_gradients(x.detach().numpy(), w.numpy(), ones, (1, 1), (1, 1), (1, 1), 1)[0]
    assert relative(x.grad, expected) <= EXACT


@pytest.mark.parametrize("images", [5, 70])
@pytest.mark.parametrize(("filter", "groups"), [(3, 1), (1, 1), (3, 16)])
@pytest.mark.parametrize("order", [IMAGE_ORDER, (0, 1, 2, 3), (1, 2, 3, 0)])
@pytest.mark.parametrize("first", [0, 2])
def test_engines_add_into_whatever_lies_in_whatever_order(
    engine: Engine, images: int, filter: int, groups: int, order: tuple[int, ...], first: int
) -> None:
    """Both gathering operators, into all images of a tensor or some of them, whose neighbours stay as they were."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images - first, 6, 5, 16)).astype(np.float32)
    w = rng.standard_normal((16, filter, filter, 16 // groups)).astype(np.float32)
    before = rng.standard_normal((images + 1, 6, 5, 16)).astype(np.float32)
    geometry = Geometry.make((6, 5), (filter, filter), padding=(filter // 2,) * 2)
    steps = (1, 1), (filter // 2,) * 2, (1, 1), groups
    forward = oracles.conv2d(x, w, *steps)
    dx = oracles.conv2d_gradients(np.zeros_like(x), w, x, *steps)[0]
    source, filters = alpha.tensor(x, engine=engine), alpha.tensor(w, engine=engine)
    for expected, operator in ((forward, engine.conv2d), (dx, engine.conv2d_input_grad)):
        held = alpha.tensor(before, engine=engine).contiguous(order)
        place = held[first:images].detach()
        given = (source, filters, None, geometry, groups) if operator == engine.conv2d else (
            source, filters, geometry, groups
        )  # fmt: skip
        assert operator(*given, accumulate=place) is place
        whole = before.astype(np.float64)
        whole[first:images] += expected
        assert relative(held, whole) <= FORWARD


def test_only_what_is_asked_for_is_computed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        pytest.fail("nobody asked for dx")

    monkeypatch.setattr(engine, "conv2d_input_grad", refuse)
    x = alpha.tensor(np.ones((2, 4, 4, 3), np.float32), engine=engine)
    w = alpha.tensor(np.ones((4, 3, 3, 3), np.float32), requires_grad=True, engine=engine)
    F.conv2d(x, w).sum().backward()
    assert w.grad is not None
    assert x.grad is None


def test_packed_filters_follow_the_weights(engine: Engine) -> None:
    """An in-place change of the weights, or a second view of their storage, must not meet stale panels."""
    rng = np.random.default_rng(0)
    x = alpha.tensor(rng.standard_normal((2, 3, 3, 4)), engine=engine)
    both = alpha.tensor(rng.standard_normal((6, 3, 3, 4)), engine=engine)
    for view in (both[:3], both[3:], both[::2]):
        w = view
        for _ in range(2):
            y = F.conv2d(x, w, padding=1)
            expected = oracles.conv2d(x.numpy(), engine.to_numpy(w), (1, 1), (1, 1), (1, 1), 1)
            assert relative(y, expected) <= EXACT
            w.mul_(2.0)


def packings(cpu: CPUEngine, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one for every launch that packs filters."""
    launches: list[Any] = []
    launch = cpu.launch

    def counted(kernel: Any, *arguments: Any, **options: Any) -> Any:
        if kernel.__name__.startswith("pack_by"):
            launches.append(kernel)
        return launch(kernel, *arguments, **options)

    monkeypatch.setattr(cpu, "launch", counted)
    return launches


@pytest.mark.parametrize("transposed", [False, True])
def test_inference_packs_filters_once_and_training_keeps_none(
    cpu: CPUEngine, monkeypatch: pytest.MonkeyPatch, transposed: bool
) -> None:
    """In both directions. What backward packs is not kept either: the optimizer's step comes before the next use."""
    launches = packings(cpu, monkeypatch)
    convolve = F.conv_transpose2d if transposed else F.conv2d
    x = alpha.tensor(np.ones((2, 5, 5, 4), np.float32), requires_grad=True, engine=cpu)
    w = alpha.tensor(np.ones((4, 3, 3, 4), np.float32), requires_grad=True, engine=cpu)
    for _ in range(2):
        convolve(x, w, stride=2).sum().backward()
    assert len(launches) == 4 and not w.storage.cache
    with alpha.no_grad():
        for _ in range(3):
            convolve(x, w, stride=2)
        assert len(launches) == 5 and len(w.storage.cache) == 1
    convolve(x, w, stride=2)
    assert not w.storage.cache  # the next step's change would only make it stale


def test_one_filter_packed_for_several_uses(cpu: CPUEngine) -> None:
    """Strides and directions whose panels have the same shape are not each other's."""
    rng = np.random.default_rng(0)
    w = alpha.tensor(rng.standard_normal((16, 5, 5, 16)).astype(np.float32), engine=cpu)
    x = alpha.tensor(rng.standard_normal((8, 12, 12, 16)).astype(np.float32), engine=cpu)
    with alpha.no_grad():
        for algorithm in ("winograd", "images"):
            for stride in ((1, 1), (2, 2)):
                with planner.use(algorithm):
                    y = F.conv2d(x, w, stride=stride, padding=2)
                    back = F.conv_transpose2d(x, w, stride=stride, padding=2)
                expected = oracles.conv2d(x.numpy(), cpu.to_numpy(w), stride, (2, 2), (1, 1), 1)
                assert relative(y, expected) <= 5e-6
                size = tuple((12 - 1) * s + 1 for s in stride)
                zeros = np.zeros((8, *size, 16))
                dx, _ = oracles.conv2d_gradients(zeros, cpu.to_numpy(w), x.numpy(), stride, (2, 2), (1, 1), 1)
                assert relative(back, dx) <= 5e-6


def test_packed_filters_follow_a_write_through_an_array(cpu: CPUEngine) -> None:
    """NumPy may write to the weights' memory, which no version counts."""
    rng = np.random.default_rng(0)
    x = alpha.tensor(rng.standard_normal((2, 3, 3, 4)), engine=cpu)
    w = alpha.tensor(rng.standard_normal((6, 3, 3, 4)), engine=cpu)
    F.conv2d(x, w, padding=1)
    array = w.numpy()
    for _ in range(2):
        array *= 2.0
        assert relative(F.conv2d(x, w, padding=1), oracles.conv2d(x.numpy(), array, (1, 1), (1, 1), (1, 1), 1)) <= EXACT


def test_results_do_not_depend_on_threads() -> None:
    case = Case(37, (7, 6), (20, 33), (3, 3), (1, 1), (1, 1))
    results = []
    for threads in (1, 2, 3):
        engine = CPUEngine(threads=threads)
        data = draw_data(case, np.float32)
        x, w, b = (alpha.tensor(a, requires_grad=True, engine=engine) for a in data[:3])
        y = F.conv2d(x, w, b, padding=1)
        y.backward(alpha.tensor(data[3], engine=engine))
        results.append([np.array(t.detach().numpy()) for t in (y, x.grad, w.grad, b.grad) if t is not None])
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("x", "w", "options", "error", "message"),
    [
        ((8, 32, 32, 3), (64, 3, 3, 16), {}, ShapeError, r"input channels.*\(8, 32, 32, 3\).*\(64, 3, 3, 16\)"),
        ((32, 3), (64, 3, 3, 3), {}, ShapeError, "4 axes"),
        ((2, 4, 4, 3), (4, 5, 5, 3), {}, ShapeError, r"\[conv2d\] .*filter of extent 5 over 4"),
        ((2, 4, 4, 3), (4, 3, 3, 3), {"stride": 0}, ArgumentError, "stride"),
        ((2, 4, 4, 3), (4, 3, 3, 3), {"padding": -1}, ArgumentError, "padding"),
        ((2, 4, 4, 3), (4, 3, 3, 3), {"padding": 1.5}, ArgumentError, "padding"),
        ((2, 4, 4, 3), (4, 3, 3, 3), {"padding": "full"}, ArgumentError, '"same" or "valid"'),
        ((2, 4, 4, 3), (4, 3, 3, 3), {"padding": "same", "stride": 2}, ArgumentError, "stride 1"),
        ((2, 4, 4, 4), (3, 3, 3, 2), {"groups": 2}, ShapeError, "divisible by groups"),
        ((2, 4, 4, 4), (4, 3, 3, 4), {"groups": 0}, ArgumentError, "groups"),
        ((1, 4, 4, 0), (4, 3, 3, 0), {}, ShapeError, "empty"),
    ],
)
def test_bad_input(engine: Engine, x: Any, w: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        F.conv2d(alpha.zeros(x, engine=engine), alpha.zeros(w, engine=engine), **options)


def test_bad_dtypes(engine: Engine) -> None:
    x = alpha.zeros((1, 4, 4, 3), engine=engine)
    with pytest.raises(DtypeError, match="float32 and float64"):
        F.conv2d(x, alpha.zeros((4, 3, 3, 3), dtype=alpha.float64, engine=engine))
    with pytest.raises(DtypeError, match="uint8"):
        F.conv2d(x.astype("uint8"), alpha.zeros((4, 3, 3, 3), dtype="uint8", engine=engine))


@pytest.mark.needs("torch")
def test_against_torch(engine: Engine) -> None:
    import torch

    case = Case(5, (11, 8), (12, 18), (3, 4), (2, 3), (2, 1), (1, 2), 3)
    x, w, b, dy = draw_data(case, np.float64)
    ours = [alpha.tensor(a, requires_grad=True, engine=engine) for a in (x, w, b)]
    y = F.conv2d(*ours, case.stride, case.padding, case.dilation, case.groups)
    y.backward(alpha.tensor(dy, engine=engine))
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, w, b)]
    images, filters = theirs[0].permute(0, 3, 1, 2), theirs[1].permute(0, 3, 1, 2)
    z = torch.nn.functional.conv2d(images, filters, theirs[2], case.stride, case.padding, case.dilation, case.groups)
    z.permute(0, 2, 3, 1).backward(torch.tensor(dy))
    assert relative(y, z.permute(0, 2, 3, 1).detach().numpy()) <= EXACT
    for mine, other in zip(ours, theirs, strict=True):
        assert relative(mine.grad, other.grad.numpy()) <= EXACT
