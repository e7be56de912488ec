"""Convolutions that do at their end what a BatchNorm beside them needs: the same results as passes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, optim
from alpha.cu32 import normalisation, planner
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv import endings
from alpha.cu32.norm_convolutions import NormConvolutions
from alpha.engine import BatchNormState, Epilogue, RunningStatistics
from alpha.errors import ShapeError
from alpha.nn import functional as F
from alpha.nn.fusion import conv_bn
from alpha.records import Normalised
from tests.cu32.test_patch_tiles import CASES, Case

Array = np.ndarray[Any, Any]

MANY = Case(35, (11, 10), 16, 20)
"""So many rows that the sums of tiles are added in groups."""
FLAT = Case(3, (9, 8), 3, 20, (5, 5), (2, 2), (2, 2))
"""Few channels, whose taps and channels are one sum."""
LAST = Case(3, (9, 8), 20, 3, (5, 5), (2, 2), (2, 2))
"""Few channels of the result, which an input gradient sums over."""
ODD = Case(4, (5, 7), 5, 7, (3, 2), (1, 2), (1, 0))
"""Channels that fill no vector."""


@dataclass(frozen=True)
class Way:
    """By what kernel a convolution is computed."""

    algorithm: str
    tile: tuple[int, int]
    precision: str = "highest"
    dtype: str = "float32"
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.algorithm}-{self.tile[0]}x{self.tile[1]}-{self.dtype}-{self.parts}"


TILES = [(128, 128), (128, 64), (64, 64), (128, 32), (64, 32)]
GATHERED = [Way("tiles", tile) for tile in TILES]
DOUBLE = Way("tiles", (64, 64), dtype="float64")
THREEFOLD = [Way("threefold", tile) for tile in TILES[:3]]
ROUNDED = [Way("tensor_cores", tile, "high") for tile in TILES[:3]]
PATCHES = [Way("patches", tile, "high") for tile in ((256, 128), (256, 64), (128, 128))]
SHALLOW = [Way("flat_tensor_cores", tile, "high") for tile in TILES[:3]]
ALL = [*GATHERED, DOUBLE, *THREEFOLD, *ROUNDED, *PATCHES]

WAYS = [GATHERED[2], DOUBLE, THREEFOLD[2], ROUNDED[2], PATCHES[1]]
"""A tile of each kernel, for many cases; the others' are tried with one."""

PAIRS = [(way, MANY) for way in ALL]
PAIRS += [(way, case) for way in WAYS for case in CASES[:5]]
PAIRS += [(way, case) for way in (GATHERED[0], DOUBLE) for case in (FLAT, ODD)]
PAIRS += [(PATCHES[2], case) for case in CASES[5:]]
PAIRS += [(replace(way, parts=parts), case) for way in WAYS for parts, case in ((3, MANY), (11, CASES[0]))]
PAIRS += [(replace(way, parts=2), case) for way in (GATHERED[0], DOUBLE) for case in (FLAT, ODD)]
PAIRS += [(replace(way, parts=parts), case) for way in SHALLOW for case in (FLAT, LAST) for parts in (1, 2)]
IDS = [f"{way}-{number}" for number, (way, _) in enumerate(PAIRS)]


@contextmanager
def taking(way: Way) -> Iterator[None]:
    """Within it convolutions are computed in that way."""
    before = alpha.get_float32_precision()
    alpha.set_float32_precision(way.precision)
    try:
        with planner.use(way.algorithm, tile=way.tile, parts=way.parts):
            yield
    finally:
        alpha.set_float32_precision(before)


def bound(way: Way) -> float:
    """The error of a sum, relative to its terms' sizes: each is rounded some twenty times, here and in the oracle."""
    return 20 * float(np.finfo(way.dtype).eps)


@pytest.mark.parametrize(("way", "case"), PAIRS, ids=IDS)
def test_statistics(cu32: DeviceEngine, way: Way, case: Case) -> None:
    """Channels far from 0 lose nothing; the result itself keeps its bits."""
    shift = 1000.0
    rng = np.random.default_rng(5)
    x, w = (
        cu32.from_numpy(rng.standard_normal(shape).astype(way.dtype))
        for shape in (
            (case.images, *case.size, case.inside),
            (case.outside, *case.filter, case.inside // case.groups),
        )
    )
    bias = shift * rng.integers(0, 2, case.outside) + rng.standard_normal(case.outside)
    bias = cu32.from_numpy(bias.astype(way.dtype))
    mean, var = (cu32.from_numpy(rng.uniform(1, 2, case.outside).astype(way.dtype)) for _ in range(2))
    running = RunningStatistics(mean, var, 0.3, cu32.from_numpy(np.array(4)))
    kept = [one.numpy().astype(np.float64) for one in (mean, var)]
    with taking(way):
        plain = cu32.conv2d(x, w, bias, case.geometry, case.groups).numpy()
        taken = []
        original = endings.MeasuredEnding.arguments

        def arguments(self: endings.MeasuredEnding, *others: Any) -> Any:
            taken.append(others[1:])
            return original(self, *others)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(endings.MeasuredEnding, "arguments", arguments)
            y, state = cu32.conv2d_measured(x, w, bias, case.geometry, case.groups, running, 1e-5)
    assert len(taken) == 1  # by the convolution's own kernel
    assert np.array_equal(y.numpy(), plain)
    rows = plain.astype(np.float64).reshape(-1, case.outside)
    deviation = np.abs(rows - rows.mean(0)).max(0)  # what the kernels' sums are of, at most twice that
    assert (np.abs(state.mean.numpy() - rows.mean(0)) <= bound(way) * deviation + 1e-12 * shift).all()
    found = 1 / state.inverse_std.numpy() ** 2 - 1e-5
    assert (np.abs(found - rows.var(0)) <= bound(way) * deviation**2 + 1e-9 * shift * deviation).all()
    unbiased = rows.var(0) * len(rows) / (len(rows) - 1)
    for got, before, new in zip((mean, var), kept, (rows.mean(0), unbiased), strict=True):
        np.testing.assert_allclose(got.numpy(), 0.7 * before + 0.3 * new, rtol=1e-5, atol=1e-6)
    assert running.batches is not None
    assert running.batches.item() == 5


def test_sums_of_tiles_are_added_in_groups(cu32: DeviceEngine) -> None:
    rows = MANY.images * np.prod(MANY.geometry.output)
    assert rows > 64 * endings.LEAST_TOGETHER


@pytest.mark.parametrize("more", ["", "residual", "accumulate", "both"])
@pytest.mark.parametrize(("way", "case"), PAIRS, ids=IDS)
def test_gradients(cu32: DeviceEngine, way: Way, case: Case, more: str) -> None:
    """The gradient past the activation, and the sums, are those of passes behind the input gradient."""
    slope = {"": 0.2, "residual": 0.0, "accumulate": None, "both": 0.1}[more]
    rng = np.random.default_rng(6)

    def drawn(*shape: int) -> Any:
        return cu32.from_numpy(rng.standard_normal(shape).astype(way.dtype))

    dy = drawn(case.images, *case.geometry.output, case.outside)
    w = drawn(case.outside, *case.filter, case.inside // case.groups)
    shape = (case.images, *case.size, case.inside)
    x, residual, there = (_image(cu32, drawn(*shape)) for _ in range(3))
    state = BatchNormState(
        *[cu32.from_numpy(rng.uniform(0.5, 2, case.inside)) for _ in range(2)],
        training=True,
    )
    epilogue = Epilogue(drawn(case.inside), drawn(case.inside), slope)
    added = residual if more in ("residual", "both") else None
    accumulate = there if more in ("accumulate", "both") else None
    with taking(way):
        plain = cu32.conv2d_input_grad(dy, w, case.geometry, case.groups)
        if accumulate is not None:
            plain = cu32.elementwise("add", accumulate, plain)
        before = Normalised(x, epilogue, state), added
        g, found = cu32.conv2d_input_grad_past(dy, w, case.geometry, case.groups, before, accumulate)
    if not case.inside % 4:
        assert found is not None
    if found is None:
        return
    dx = cu32.batch_norm_summed_grad(g, x, epilogue, state, found, False)
    wanted = cu32.batch_norm_remade_grad(plain, x, added, epilogue, state, added is not None)
    for got, right in zip((dx, found.weight, found.bias), wanted, strict=False):
        ours, theirs = (one.numpy().astype(np.float64) for one in (got, right))
        assert np.abs(ours - theirs).max() <= 4 * bound(way) * max(1, np.abs(theirs).max())
    if added is not None and slope is not None:
        np.testing.assert_allclose(g.numpy(), wanted[3].numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("more", ["", "accumulate", "linear"])
@pytest.mark.parametrize(("way", "case"), PAIRS, ids=IDS)
def test_gradients_of_two_batch_norms(cu32: DeviceEngine, way: Way, case: Case, more: str) -> None:
    """The gradient past the activation of their sum, and its three sums, are those of a pass of their own."""
    slope = {"": 0.0, "accumulate": 0.2, "linear": None}[more]
    rng = np.random.default_rng(8)

    def drawn(*shape: int) -> Any:
        return cu32.from_numpy(rng.standard_normal(shape).astype(way.dtype))

    dy = drawn(case.images, *case.geometry.output, case.outside)
    w = drawn(case.outside, *case.filter, case.inside // case.groups)
    shape = (case.images, *case.size, case.inside)
    there = _image(cu32, drawn(*shape)) if more == "accumulate" else None

    def term(weight: Any, bias: Any) -> Normalised:
        statistics = [cu32.from_numpy(rng.uniform(0.5, 2, case.inside)) for _ in range(2)]
        state = BatchNormState(*statistics, training=True)
        return Normalised(_image(cu32, drawn(*shape)), Epilogue(weight, bias, slope), state)

    first, second = term(drawn(case.inside), drawn(case.inside)), term(None, drawn(case.inside) if more else None)
    with taking(way):
        plain = cu32.conv2d_input_grad(dy, w, case.geometry, case.groups)
        if there is not None:
            plain = cu32.elementwise("add", there, plain)
        g, found = cu32.conv2d_input_grad_past(dy, w, case.geometry, case.groups, (first, second), there)
    if not case.inside % 4:
        assert found is not None
    if found is None:
        return
    dx, other = cu32.batch_norm_sum_summed_grad(g, first, second, found)
    wanted = cu32.batch_norm_sum_grad(plain, first, second)
    ours = (dx, found.weight, found.bias, other, found.other_weight, found.other_bias)
    for got, right in zip(ours, wanted, strict=True):
        one, expected = (value.numpy().astype(np.float64) for value in (got, right))
        assert np.abs(one - expected).max() <= 4 * bound(way) * max(1, np.abs(expected).max())


def _image(engine: DeviceEngine, x: Any) -> Any:
    """The same in the engine's order of images."""
    from alpha.engine import IMAGE_ORDER

    return engine.dense(x, IMAGE_ORDER)


@pytest.mark.parametrize("slope", [None, 0.0, 0.2])
@pytest.mark.parametrize(("way", "case"), [pair for pair in PAIRS if pair[0].dtype == "float32"])
def test_normalised_images(cu32: DeviceEngine, way: Way, case: Case, slope: float | None) -> None:
    """A kernel that normalises what it reads gives the bits of a pass before it; statistics too."""
    before = drawn_before(cu32, case, slope)
    rng = np.random.default_rng(8)
    shape = (case.outside, *case.filter, case.inside // case.groups)
    w = cu32.from_numpy(rng.standard_normal(shape).astype(np.float32))
    given = w, case.geometry, case.groups, RunningStatistics(), 1e-5
    with taking(way):
        y, state = cu32.conv2d_normalised(before, *given)
        between = cu32.batch_norm_again(*before, None)
        expected, other = cu32.conv2d_measured(between, w, None, *given[1:])
    assert np.array_equal(y.numpy(), expected.numpy())
    for one, right in zip(state[:2], other[:2], strict=True):
        assert np.array_equal(one.numpy(), right.numpy())


def drawn_before(engine: DeviceEngine, case: Case, slope: float | None) -> Normalised:
    """A BatchNorm of images, with a weight only where it has an activation, and a bias only where that has a slope."""
    rng = np.random.default_rng(7)
    images = engine.from_numpy(rng.standard_normal((case.images, *case.size, case.inside)).astype(np.float32))
    mean, std = rng.standard_normal(case.inside), rng.uniform(0.5, 2, case.inside)
    state = BatchNormState(engine.from_numpy(mean), engine.from_numpy(1 / std), True)
    weight, bias = (engine.from_numpy(rng.standard_normal(case.inside).astype(np.float32)) for _ in range(2))
    epilogue = Epilogue(None if slope is None else weight, bias if slope else None, slope)
    return Normalised(_image(engine, images), epilogue, state)


GRADIENTS = [Way("tiles", (64, 64)), Way("window", (64, 64), "high"), Way("window", (128, 64), "high")]
GRADIENTS += [Way("threefold_window", (64, 64)), *THREEFOLD, *ROUNDED]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("case", [Case(40, (7, 6), 16, 20), Case(33, (9, 7), 36, 16, (3, 5), (2, 1), (1, 2))], ids=str)
@pytest.mark.parametrize("way", GRADIENTS, ids=str)
def test_filter_gradients_of_normalised_images(cu32: DeviceEngine, way: Way, case: Case, parts: int) -> None:
    before = drawn_before(cu32, case, 0.2)
    rng = np.random.default_rng(9)
    dy = cu32.from_numpy(rng.standard_normal((case.images, *case.geometry.output, case.outside)).astype(np.float32))
    with taking(replace(way, parts=parts)):
        dw = cu32.conv2d_weight_grad_normalised(before, dy, case.geometry, case.groups)
        expected = cu32.conv2d_weight_grad(cu32.batch_norm_again(*before, None), dy, case.geometry, case.groups)
    assert np.array_equal(dw.numpy(), expected.numpy())


# -- in training -----------------------------------------------------------------------------------------------------


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, has BatchNorms take passes of their own, as they would without this."""
    return lambda: monkeypatch.setattr(NormConvolutions, "measures_convolutions", lambda self, x: False)


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors too take the way of large ones."""
    monkeypatch.setattr(normalisation, "REMADE_FROM", 0)


class Net(nn.Module):
    """Residual blocks, a shortcut with a BatchNorm, and layers in a row."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        after = width * 3 // 2
        self.stem = nn.Sequential(
            *(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)),
            *(nn.Conv2d(width, width, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
        )
        self.blocks = nn.Sequential(
            nn.models.resnet.BasicBlock(width, width, 1, "leaky_relu", 3),
            nn.models.resnet.BasicBlock(width, after, 2, "relu", 1),
        )
        self.fc = nn.Linear(after, 5)

    def forward(self, x: Any) -> Any:
        return self.fc(self.blocks(self.stem(x)).mean((1, 2)))


def trained(engine: DeviceEngine, capture: bool = False, dtype: Any = np.float64, width: int = 8) -> dict[str, Array]:
    """Losses, weights and buffers after four steps."""
    alpha.manual_seed(1)
    net = Net(width).to(engine).to(np.dtype(dtype)).train()
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    rng = np.random.default_rng(2)
    x = alpha.tensor(rng.standard_normal((6, 9, 10, 3)).astype(dtype), engine=engine)
    y = alpha.tensor(rng.integers(0, 5, 6), engine=engine)

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = alpha.graph(step) if capture else step
    losses = np.array([run(x, y).item() for _ in range(4)])
    return {"losses": losses, **{name: one.numpy() for name, one in net.state_dict().items()}}


@pytest.mark.parametrize("capture", [False, True], ids=["eager", "captured"])
def test_training(cu32: DeviceEngine, apart: Callable[[], None], capture: bool) -> None:
    """Rounding alone tells the two apart."""
    ours = trained(cu32, capture)
    apart()
    theirs = trained(cu32)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, has what BatchNorms make lie in memory, as it would without convolutions that normalise."""
    return lambda: monkeypatch.setattr(NormConvolutions, "normalises_in_convolutions", lambda self, x: False)


def normalised(engine: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the kernel normalised what it read, for each call that may have it do so. Self-checks do not count."""
    found: list[bool] = []
    original = NormConvolutions.batch_norm_again

    def forward(self: NormConvolutions, *arguments: Any) -> Any:
        if self is not engine:
            return normal(self, *arguments)
        passes: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(type(self), "batch_norm_again", lambda *given: passes.append(1) or original(*given))
            result = normal(self, *arguments)
        found.append(not passes)
        return result

    normal = NormConvolutions.conv2d_normalised
    monkeypatch.setattr(NormConvolutions, "conv2d_normalised", forward)
    return found


@pytest.mark.parametrize("way", [THREEFOLD[2], ROUNDED[2], PATCHES[2], GATHERED[2]], ids=str)
def test_training_with_normalised_images(cu32: DeviceEngine, between: Callable[[], None], way: Way) -> None:
    """The same bits, whether kernels normalise what they read, or cannot, or need not; eager and captured."""
    with taking(way):
        ours = [trained(cu32, capture, np.float32, 32) for capture in (False, True)]
        between()
        theirs = trained(cu32, False, np.float32, 32)
    for found in ours:
        for name, value in theirs.items():
            assert np.array_equal(found[name], value), name


def test_who_normalises(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels with tensor cores do, of the layers in a row and of both blocks; others leave it to a pass."""
    found = normalised(cu32, monkeypatch)
    with taking(THREEFOLD[2]):
        trained(cu32, dtype=np.float32, width=32)
    assert found[:4] == [True, False, True, True]  # the second sum has 144 terms, too few for three products
    assert found == found[:4] * 4
    found.clear()
    with taking(GATHERED[2]):
        trained(cu32, dtype=np.float32, width=32)
    assert found == [False] * 16
    found.clear()
    trained(cu32)
    assert found == [False] * 16  # float64 has no such kernels


def test_second_gradients_of_normalised_images(cu32: DeviceEngine, between: Callable[[], None]) -> None:
    """In float64, where both ways are off by roundings that some hundred sums in a row have made larger."""
    results = []
    for fused in (True, False):
        if not fused:
            between()
        alpha.manual_seed(5)
        net = Net(32).to(cu32).double().train()
        x = alpha.tensor(np.random.default_rng(6).standard_normal((4, 6, 5, 3)), engine=cu32)
        x.requires_grad_()
        (first,) = alpha.autograd.grad(net(x).square().sum(), [x], create_graph=True)
        first.square().sum().backward()
        results.append([x.grad.numpy(), *gradients(*net.parameters())])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11 * np.abs(theirs).max())


def test_a_convolution_that_cannot_normalise_behind_a_norm(cu32: DeviceEngine, between: Callable[[], None]) -> None:
    """Depthwise ones, and those of few channels, have the pass before them, in backward too: the same bits."""
    results = []
    for fused in (True, False):
        if not fused:
            between()
        alpha.manual_seed(8)
        net = nn.Sequential(
            *(nn.Conv2d(3, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(16, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU()),
            *(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)),
        )
        net.to(cu32).train()
        x = alpha.tensor(np.random.default_rng(6).standard_normal((4, 9, 8, 3)).astype(np.float32), engine=cu32)
        y = net(x)
        y.square().sum().backward()
        results.append([y.detach().numpy(), *gradients(*net.parameters())])
    for ours, theirs in zip(*results, strict=True):
        assert np.array_equal(ours, theirs)


def test_shared_memory_that_has_no_room_for_a_table(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 99 KiB of a consumer's device hold the stages of a tile of 128 x 128, and no table of 256 channels."""
    monkeypatch.setattr(cu32.device, "shared_per_block", 99 << 10)
    case = Case(2, (3, 3), 256, 16)
    before = drawn_before(cu32, case, 0.0)
    w = cu32.from_numpy(np.ones((16, 3, 3, 256), np.float32))
    found = normalised(cu32, monkeypatch)
    for tile in TILES[:3]:
        with taking(Way("tensor_cores", tile, "high")):
            cu32.conv2d_normalised(before, w, case.geometry, 1, RunningStatistics(), 1e-5)
    assert found == [False, True, True]


def test_normalised_images_whose_filters_do_not_fit_are_told(cu32: DeviceEngine) -> None:
    layers = [nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32)]
    net = nn.Sequential(*layers).to(cu32).train()
    with pytest.raises(ShapeError, match=r"\[conv2d\]"):
        net(alpha.ones((2, 9, 9, 3), engine=cu32))


def test_frozen_parameters_around_normalised_images(cu32: DeviceEngine, between: Callable[[], None]) -> None:
    """What needs no gradient gets none, and the others are the same."""
    results = []
    for fused in (True, False):
        if not fused:
            between()
        alpha.manual_seed(7)
        net = Net(32).to(cu32).train()
        for name, one in net.named_parameters():
            one.requires_grad_("conv2" in name or name.startswith(("stem.4", "fc")))
        x = alpha.tensor(np.random.default_rng(6).standard_normal((4, 6, 5, 3)).astype(np.float32), engine=cu32)
        net(x).square().sum().backward()
        results.append([None if one.grad is None else one.grad.numpy() for one in net.parameters()])
    for ours, theirs in zip(*results, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or np.array_equal(ours, theirs)


def layers(engine: DeviceEngine) -> tuple[Any, Any, Any, Any]:
    """A convolution, a BatchNorm behind it, a convolution of that, and images."""
    alpha.manual_seed(3)
    first, norm, second = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)
    for layer in (first, norm, second):
        layer.to(engine).double().train()
    x = alpha.tensor(np.random.default_rng(4).standard_normal((3, 7, 6, 4)), engine=engine)
    return first, norm, second, x


def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each input gradient behind a BatchNorm took part of its work, as they come."""
    found = []
    original = NormConvolutions.conv2d_input_grad_past

    def past(self: NormConvolutions, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        found.append(result[1] is not None)
        return result

    monkeypatch.setattr(NormConvolutions, "conv2d_input_grad_past", past)
    return found


def gradients(*tensors: Any) -> list[Array]:
    return [one.grad.numpy() for one in tensors]


def test_a_gradient_that_is_looked_at_is_the_one_before_the_activation(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, norm, second, x = layers(cu32)
    found = handed_over(monkeypatch)
    parameters = (*first.parameters(), *norm.parameters(), *second.parameters())
    second(conv_bn(first, norm, x, activation="relu")).square().sum().backward()
    assert found == [True]
    plain = gradients(*parameters)
    for look in ("hook", "retain"):
        seen: list[Any] = []
        for one in parameters:
            one.grad = None
        y = conv_bn(first, norm, x, activation="relu")
        if look == "hook":
            y.register_hook(seen.append)
        else:
            y.retain_grad()
        second(y).square().sum().backward()
        gradient = seen[0] if look == "hook" else y.grad
        assert (gradient.numpy()[y.detach().numpy() == 0] != 0).any()
        for ours, theirs in zip(gradients(*parameters), plain, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert found == [True]


def test_the_last_of_several_contributions_completes_a_gradient(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, apart: Callable[[], None]
) -> None:
    """Whichever of the functions that took the result is the last one in backward."""
    found = handed_over(monkeypatch)
    results = []
    for fused in (True, False):
        if not fused:
            apart()
        first, norm, second, x = layers(cu32)
        y = conv_bn(first, norm, x, activation="relu")
        a, b = second(y), second(y)  # the one that was called first runs last
        (a.square().sum() + (b * b * b).sum()).backward()
        y = conv_bn(first, norm, x, activation="relu")
        other = alpha.ones(y.shape, dtype=y.dtype, engine=cu32).requires_grad_()
        a, b = second(y), y + other  # what arrives from the sum belongs to the other term too
        (a.square().sum() + (b * b).sum()).backward()
        y = conv_bn(first, norm, x, activation="relu")
        b = (y * 0.5).sum()  # here this is the last one
        (second(y).square().sum() + b).backward()
        results.append(gradients(*first.parameters(), *norm.parameters(), *second.parameters()))
    assert found == [True]
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


def test_backward_twice(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    first, norm, second, x = layers(cu32)
    found = handed_over(monkeypatch)
    loss = second(conv_bn(first, norm, x, activation="relu")).square().sum()
    loss.backward(retain_graph=True)
    once = gradients(*first.parameters())
    loss.backward(retain_graph=True)
    assert found == [True, True]
    for twice, one in zip(gradients(*first.parameters()), once, strict=True):
        np.testing.assert_allclose(twice, 2 * one, rtol=1e-12, atol=1e-12)


def test_second_gradients(cu32: DeviceEngine, apart: Callable[[], None]) -> None:
    """The graph of the first ones has them as they are without this."""
    results = []
    for fused in (True, False):
        if not fused:
            apart()
        first, norm, second, x = layers(cu32)
        loss = second(conv_bn(first, norm, x, activation="leaky_relu")).square().sum()
        (dw,) = alpha.autograd.grad(loss, first.weight, create_graph=True)
        dw.square().sum().backward()
        results.append([dw.detach().numpy(), *gradients(*first.parameters(), *norm.parameters())])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("wrong", ["residual", "weight", "one value"])
def test_what_batch_norm_refuses_leaves_its_statistics_as_they_were(cu32: DeviceEngine, wrong: str) -> None:
    first, norm, _, x = layers(cu32)
    residual = None
    if wrong == "residual":
        residual = alpha.ones((3, 7, 5, 8), engine=cu32).double()
    elif wrong == "weight":
        norm.weight = nn.Parameter(alpha.ones((8,), engine=cu32))
    else:
        x = x[:1, :1, :1]
    with pytest.raises((alpha.errors.ShapeError, alpha.errors.DtypeError)):
        conv_bn(first, norm, x, residual)
    assert norm.num_batches_tracked.item() == 0
    assert not norm.running_mean.numpy().any()
