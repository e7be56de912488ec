"""The CPU engine's algorithms for a convolution, each where it serves: values, products counted, and the choice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from alpha.cpu import convolution, planner
from alpha.cpu.conv import blocking, columns, depthwise, filters, lanes, panels, positions, taps, winograd
from alpha.cpu.conv.algorithm import Algorithm
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import Problem, dense_problem, problem_of
from alpha.cpu.convolution import MACS
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import winograd as winograd_kernels
from alpha.cpu.kernels.winograd import PLAIN
from alpha.cpu.kernels.winograd_forms import FORMS, Key
from alpha.engine import IMAGE_ORDER
from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Geometry
from tests import oracles
from tests.engine.algorithms import BOUND, check_algorithm
from tests.engine.test_conv import EXACT, PICKED, Case, cases, draw_data, relative
from tests.tiers import FLOATS

WINOGRADS = [algorithm.name for algorithm in ALGORITHMS if isinstance(algorithm, winograd.Winograd)]


def problem(
    n: int,
    size: tuple[int, int],
    ic: int,
    oc: int,
    item: int = 4,
    filter: tuple[int, int] = (3, 3),
    stride: int = 1,
    operator: str = FORWARD,
) -> Problem:
    """Images in the engine's own order, padding 1."""
    geometry = Geometry.make(size, filter, (stride, stride), (1, 1))
    return replace(dense_problem(operator, geometry, n, ic, oc, 1), item=item)


def chosen(*shape: Any, **options: Any) -> str:
    """The algorithm that the planner takes for a ``problem``."""
    return planner.choose(problem(*shape, **options)).name


def check(case: Case, dtype: Any, algorithm: str | None, image_order: bool = True) -> None:
    """Forward with each of its ends, input gradient, and that added to what is there; None: as the planner chooses."""
    engine = alpha.engine("cpu")
    x, w, b, dy = draw_data(case, dtype)
    order = IMAGE_ORDER if image_order else None
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
    images, grads = (alpha.tensor(a, engine=engine).contiguous(order) for a in (x, dy))
    before = alpha.tensor(x, engine=engine).contiguous(IMAGE_ORDER)
    weights = alpha.tensor(w, engine=engine)
    with planner.use(algorithm) if algorithm else nullcontext():
        y = engine.conv2d(images, weights, alpha.tensor(b, engine=engine), geometry, case.groups)
        whole = engine.conv2d(images, weights, alpha.tensor(b, engine=engine), geometry, case.groups, grads, 0.1)
        relu = engine.conv2d(images, weights, None, geometry, case.groups, slope=0.0)
        dx = engine.conv2d_input_grad(grads, weights, geometry, case.groups)
        total = engine.conv2d_input_grad(grads, weights, geometry, case.groups, None, before)
    parameters = (case.stride, case.padding, case.dilation, case.groups)
    expected, _ = oracles.conv2d_gradients(x, w, dy, *parameters)
    # The terms' own size: where few of them cancel, their sum is smaller than its error's source.
    dx_size = oracles.conv2d_gradients(x, w**2, dy**2, *parameters)[0]
    y_size = oracles.conv2d(x**2, w**2, *parameters) + b**2
    bound = BOUND if dtype == np.float32 else EXACT
    convolved = oracles.conv2d(x, w, *parameters)
    assert error(y, convolved + b, y_size) <= bound
    assert error(whole, leaky(convolved + b + dy, 0.1), y_size + dy**2) <= bound
    assert error(relu, np.maximum(convolved, 0), y_size) <= bound
    assert error(dx, expected, dx_size) <= bound
    assert error(total, expected + x, dx_size + x**2) <= bound


def error(actual: alpha.Tensor, expected: Any, squares: Any) -> float:
    """The greatest difference, of the greatest of the results and of the roots of their terms' sums of squares."""
    size = max(np.abs(expected).max(), np.sqrt(squares.max()), 1e-30)
    return float(np.abs(actual.numpy() - expected).max() / size)


def leaky(x: np.ndarray[Any, Any], slope: float) -> np.ndarray[Any, Any]:
    return np.where(x > 0, x, slope * x)


@settings(max_examples=100, deadline=None)
@given(case=cases(), dtype=st.sampled_from([np.float32, np.float64]), image_order=st.booleans())
def test_positions_as_rows(case: Case, dtype: Any, image_order: bool) -> None:
    check(case, dtype, "positions", image_order)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    case=cases(),
    dtype=st.sampled_from([np.float32, np.float64]),
    widths=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 1, 2]),
    packed_bytes=st.sampled_from([1, 8 << 10, panels.PACKED_BYTES]),
    image_order=st.booleans(),
    again=st.booleans(),
)
def test_panels(
    case: Case, dtype: Any, widths: tuple[int, int], groups: int, packed_bytes: int, image_order: bool, again: bool
) -> None:
    """Any geometry, on whole panels; channels in several blocks where so few bytes are taken at a time.

    ``again``: with filters that serve again, and are packed before.
    """
    panel = ISA.panel(np.dtype(dtype).itemsize)
    whole = replace(case, channels=(groups * widths[0] * panel, groups * widths[1] * panel), groups=groups)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(panels, "MIN_PANELS", 1)
        patched.setattr(panels, "MIN_FILTER_BYTES", 1)
        patched.setattr(panels, "PACKED_BYTES", packed_bytes)
        patched.setattr(panels, "plan", lru_cache(panels.plan.__wrapped__))
        patched.setattr(filters, "is_inference", lambda: again)
        check(whole, dtype, "panels", image_order)
        assert panels.plan.cache_info().misses >= 2  # of either operator: they were taken
    geometry = Geometry.make(whole.size, whole.filter, whole.stride, whole.padding, whole.dilation)
    assert MACS["conv2d"] == MACS["conv2d_input_grad"] == geometry.macs(whole.n, *whole.channels, groups)


@pytest.mark.usefixtures("same_figures")
def test_panels_serve_what_is_whole_and_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole panels of results, whole vectors of what is summed, and panels enough to share; elsewhere others do it."""
    panel = ISA.panel(4)
    assert not panels.serves(problem(1, (4, 4), 128, 128))  # 0.6 MB
    assert panels.serves(problem(1, (4, 4), 256, 256))
    with planner.use("panels"):
        assert chosen(1, (4, 4), 300, 500) != "panels"
    # Filters of 9 MiB that meet one image are packed by who reads them.
    assert planner.choose(problem(1, (7, 7), 512, 512), packs=True).name == "panels"
    # A generator's filters of 50 MiB are read in order by their tasks, also where they are packed for all calls; not
    # where vectors are so short that Winograd's fewer products outweigh the reading.
    generator = dense_problem(INPUT_GRAD, Geometry.make((8, 8), (5, 5), (2, 2), (2, 2)), 1, 512, 1024, 1)
    assert planner.choose(generator, packs=False).name == ("winograd" if ISA.name == "generic" else "panels")
    monkeypatch.setattr(panels, "MIN_FILTER_BYTES", 1)
    for input, output, serves in ((panel, 8 * panel, True), (panel // 2, 8 * panel, True), (panel, 7 * panel, False)):
        assert panels.serves(problem(1, (4, 4), input, output)) is serves
        assert panels.serves(problem(1, (4, 4), output, input, operator=INPUT_GRAD)) is serves
    assert not panels.serves(problem(1, (4, 4), panel, 8 * panel + 1))
    assert not panels.serves(problem(1, (4, 4), panel + 1, 8 * panel))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape", [(1, 64, 9, 64), (2, 37, 1, 19), (1, 33, 4, 16), (3, 16, 2, 35), (1, 5, 3, 3)], ids=str
)
def test_packed_by_output(shape: tuple[int, int, int, int], dtype: Any) -> None:
    """Each number at its place, zeros where a panel's channels run out: whole squares of vectors, and the rest."""
    groups, channels, taps, depth = shape
    engine = alpha.engine("cpu")
    width = ISA.panel_of(channels, np.dtype(dtype).itemsize)
    count = -(-channels // width)
    w = np.arange(1, groups * channels * taps * depth + 1, dtype=dtype).reshape(groups * channels, 1, taps, depth)
    packed = filters.packed(engine, engine.from_numpy(w), (groups, count, taps, depth, width), True)  # type: ignore[arg-type]
    expected = np.zeros((groups, count * width, taps, depth), dtype)
    expected[:, :channels] = w.reshape(shape)
    expected = expected.reshape(groups, count, width, taps, depth).transpose(0, 1, 3, 4, 2)
    assert np.array_equal(packed.numpy(), expected)


@settings(max_examples=100, deadline=None)
@given(
    n=st.sampled_from([1, 2, 5, 13, 50]),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    channels=st.tuples(*[st.sampled_from([1, 3, 8, 17, 33, 70])] * 2),
    padding=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    taps=st.sampled_from([3, 3, 5]),
    steps=st.sampled_from([(2, (1, 1)), (1, (1, 1)), (1, (1, 1)), (1, (2, 2)), (1, (1, 3)), (1, (4, 2))]),
    groups=st.sampled_from([1, 1, 2, 3]),
    algorithm=st.sampled_from(WINOGRADS),
)
def test_winograd(
    n: int,
    size: tuple[int, int],
    channels: tuple[int, int],
    padding: tuple[int, int],
    taps: int,
    steps: tuple[int, tuple[int, int]],
    groups: int,
    algorithm: str,
) -> None:
    """Odd maps leave parts of tiles, and padding of more than the filter leaves tiles without input.

    Of a dilation, each remainder has tiles of its own, and none where the map is smaller.
    """
    stride, dilation = steps
    channels = (channels[0] * groups, channels[1] * groups)
    extents = [(taps - 1) * d + 1 for d in dilation]
    size = (max(size[0], extents[0] - 2 * padding[0]), max(size[1], extents[1] - 2 * padding[1]))
    case = Case(n, size, channels, (taps, taps), (stride, stride), padding, dilation, groups=groups)
    check(case, np.float32, algorithm)


@pytest.mark.parametrize(("made", "key"), [(made, key) for made, forms in FORMS.items() for key in forms], ids=str)
def test_the_forms_of_an_axis(made: int, key: Key, rng: np.random.Generator) -> None:
    """Each by its definition, in float64, to 1e-12; fewer products than there are pairs; only small factors."""
    by_output, taps, stride, odd = key
    form = FORMS[made][key]
    a, b, g = (np.array(matrix) for matrix in (form.a, form.b, form.g))
    assert (form.inputs, form.results, form.places) == (b.shape[1], a.shape[0], len(b) ** 2)
    if made == 2:
        assert set(np.abs([*a.ravel(), *b.ravel()])) <= {0, 1} and set(np.abs(g.ravel())) <= {0, 0.5, 1}
    assert max(np.abs(matrix).max() for matrix in (a, b, g)) < 4
    assert len(b) < form.result_step * taps / (1 if by_output else stride)
    w, tile = rng.normal(size=taps), rng.normal(size=form.inputs)
    results = a @ ((g @ w) * (b @ tile))
    for k in range(form.results):
        # With a padding of ``odd``, result k and input j of the tile lie at these places.
        if by_output:
            expected = sum(w[f] * tile[stride * k + f] for f in range(taps))
        else:
            places = {f: (k + odd - f) / stride - form.first_input for f in range(taps)}
            expected = sum(w[f] * tile[int(j)] for f, j in places.items() if j == int(j))
        assert results[k] == pytest.approx(expected, abs=1e-12)


def test_threads_that_want_a_form_at_once_get_the_same_functions() -> None:
    """Their addresses are those of the functions that are kept."""
    form = FORMS[2][True, 3, 2, 0]
    winograd_kernels._compiled.cache_clear()
    winograd_kernels._of_form.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(winograd_kernels.transforms, [form] * 8))
    kept = winograd_kernels._compiled(form, PLAIN)
    assert found == {kept}
    functions = [winograd_kernels._of_form(name, form, PLAIN) for name in ("_of_input", "_of_result", "_of_filters")]
    assert [kept.of_input, kept.of_result, kept.of_filters] == [function.address for function in functions]


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Filters of any size make stages worth while, of few images at a time."""
    monkeypatch.setattr(winograd, "STAGED_BYTES", 0)
    monkeypatch.setattr(winograd, "STAGED_VALUES", 200_000)
    winograd.plan.cache_clear()
    yield
    winograd.plan.cache_clear()


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("algorithm", WINOGRADS)
@pytest.mark.parametrize("image_order", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        Case(1, (7, 7), (64, 80), (3, 3), padding=(1, 1)),
        Case(50, (5, 4), (32, 48), (3, 3), padding=(1, 1)),  # several parts of the images
        Case(16, (3, 9), (16, 17), (3, 3), padding=(2, 0)),
        Case(8, (1, 2), (70, 33), (3, 3), padding=(3, 1)),  # tiles without input
        Case(5, (6, 6), (33, 16), (3, 3), padding=(1, 1)),  # tiles of no whole vectors: no stages forward
        Case(16, (11, 8), (24, 40), (3, 3), (2, 2), (1, 1)),
        Case(16, (9, 10), (24, 40), (5, 5), (2, 2), (2, 2)),
        Case(16, (6, 7), (24, 40), (5, 5), (1, 1), (2, 2)),
    ],
    ids=str,
)
def test_winograd_in_stages(case: Case, image_order: bool, algorithm: str) -> None:
    """Those that have no form of the algorithm take another."""
    check(case, np.float32, algorithm, image_order)


def test_large_filters_have_stages() -> None:
    def stages(n: int, size: tuple[int, int], channels: int) -> tuple[Any, ...]:
        return winograd.plan(problem(n, size, channels, channels)).stages

    assert len(stages(1, (7, 7), 512)) == 1 and len(stages(512, (4, 4), 512)) > 1
    assert len(winograd.plan(problem(1, (7, 7), 512, 512), 4).stages) == 1
    assert stages(128, (16, 16), 64) == ()
    first, *_, last = stages(500, (4, 4), 512)
    assert first.first == 0 and last.first + last.images == 500
    engine = alpha.engine("cpu")
    x, w = alpha.zeros((2, 7, 7, 512), engine=engine).contiguous(IMAGE_ORDER), alpha.zeros((512, 3, 3, 512))
    with planner.use("winograd"):
        engine.conv2d(x, w, None, Geometry.make((7, 7), (3, 3), padding=(1, 1)), 1)
    assert MACS["conv2d"] == 16 * 16 * 2 * 512 * 512


@settings(max_examples=100, deadline=None)
@given(case=cases(), dtype=st.sampled_from([np.float32, np.float64]), image_order=st.booleans())
def test_images_as_lanes(case: Case, dtype: Any, image_order: bool) -> None:
    check(case, dtype, "lanes", image_order)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("channels", range(1, 8))
def test_every_tile_of_images_as_lanes(channels: int, dtype: Any) -> None:
    """More images than a task takes, depths of several blocks, one odd, bands of rows, positions of no tap."""
    check(Case(70, (9, 8), (channels, 37), (4, 3), (2, 3), (1, 0)), dtype, "lanes")
    check(Case(33, (9, 7), (19, channels), (3, 5), (1, 2), (0, 1), (2, 1)), dtype, "lanes", image_order=False)


DEPTHWISE = [
    Case(5, (6, 6), (16, 16), (3, 3), padding=(1, 1), groups=16),
    Case(2, (9, 9), (3, 3), (7, 7), (2, 2), (3, 3), groups=3),  # channels that fill no vector
    Case(70, (7, 5), (20, 20), (3, 2), (2, 1), (1, 2), (1, 2), 20),
    Case(13, (4, 4), (37, 37), (3, 3), padding=(1, 1), groups=37),  # vectors and a rest
    Case(3, (8, 8), (4, 4), (2, 2), (3, 3), groups=4),  # some inputs meet no tap
    Case(2, (1, 1), (5, 5), (5, 5), padding=(2, 2), groups=5),
    Case(60, (9, 9), (130, 130), (3, 3), padding=(1, 1), groups=130),  # several chunks of images
]
SLOW_TO_VERIFY = DEPTHWISE[-1]


LARGE = Case(1, (4, 4), (256, 256), (3, 3), padding=(1, 1))
"""Filters of whole panels, and large."""

EVERY = [*PICKED, *DEPTHWISE[:2], LARGE]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", EVERY, ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: f"{algorithm.name} {algorithm.operators[-1]}")
def test_every_algorithm(algorithm: Algorithm, case: Case, dtype: Any) -> None:
    """Several blocks of taps and channels among them: results are finished once, with the last."""
    check_algorithm(algorithm, case, dtype)


def test_every_algorithm_is_met_with_each_of_its_operators() -> None:
    for algorithm in ALGORITHMS:
        for operator in algorithm.operators:
            problems = [dense_problem_of(operator, case) for case in EVERY]
            if algorithm.rounds:
                problems = [replace(problem, rounds=True) for problem in problems]
            assert any(map(algorithm.serves, problems)), (algorithm.name, operator)


def dense_problem_of(operator: str, case: Case) -> Problem:
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation).reached
    return dense_problem(operator, geometry, case.n, *case.channels, case.groups)


def test_names_are_files_and_belong_to_one_algorithm_of_an_operator() -> None:
    for algorithm in ALGORITHMS:
        assert type(algorithm).__module__.startswith(
            "alpha.cpu.conv." + algorithm.name.rstrip("34").removesuffix("_words")
        )
        for operator in algorithm.operators:
            assert planner.named(algorithm.name, operator) is algorithm


@pytest.mark.parametrize("image_order", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", [*DEPTHWISE[:-1], pytest.param(SLOW_TO_VERIFY, marks=pytest.mark.slow)], ids=str)
def test_depthwise(case: Case, dtype: Any, image_order: bool) -> None:
    check_depthwise(case, dtype, image_order)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    n=st.sampled_from([1, 2, 5, 9]),
    size=st.tuples(st.integers(1, 17), st.integers(1, 17)),
    channels=st.sampled_from([2, 16, 33, 70]),
    filter=st.tuples(*[st.sampled_from([1, 2, 3, 5])] * 2),
    stride=st.tuples(*[st.integers(1, 3)] * 2),
    dilation=st.tuples(*[st.integers(1, 2)] * 2),
    dtype=st.sampled_from([np.float32, np.float64]),
    image_order=st.booleans(),
)
def test_depthwise_of_any_geometry(
    n: int,
    size: tuple[int, int],
    channels: int,
    filter: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    dtype: Any,
    image_order: bool,
) -> None:
    padding = (filter[0] * dilation[0] // 2, filter[1] * dilation[1] // 2)
    check_depthwise(
        Case(n, size, (channels, channels), filter, stride, padding, dilation, channels), dtype, image_order
    )


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"MAX_WHOLE_IMAGES": 9}, {"COPY_BYTES": 1}, {"CHUNK_BYTES": 1, "STREAMED": 1}])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_in_many_tasks(limits: dict[str, int], stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the rows, chunks of images and of channels, results past the caches: equal to the bit on any threads."""
    for name, value in {"SMALL_CYCLES": 0, "MIN_POSITION_BYTES": 128, **limits}.items():
        monkeypatch.setattr(depthwise, name, value)
    depthwise.plan.cache_clear()
    case = Case(5, (13, 11), (80, 80), (3, 3), (stride, stride), (1, 1), groups=80)
    results = [check_depthwise(case, np.float32, True, threads) for threads in (1, 2, 3)]
    depthwise.plan.cache_clear()
    assert results[0] == results[1] == results[2]


def check_depthwise(case: Case, dtype: Any, image_order: bool, threads: int | None = None) -> bytes:
    """All three operators and the products that they count; returns the results' bits."""
    check(case, dtype, None, image_order)
    engine = alpha.engine("cpu")
    x, w, _, dy = draw_data(case, dtype)
    order = IMAGE_ORDER if image_order else None
    images, grads = (alpha.tensor(a, engine=engine).contiguous(order) for a in (x, dy))
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
    before = engine.threads
    engine.configure(threads=threads)
    try:
        y = engine.conv2d(images, alpha.tensor(w, engine=engine), None, geometry, case.groups)
        dx = engine.conv2d_input_grad(grads, alpha.tensor(w, engine=engine), geometry, case.groups)
        dw = engine.conv2d_weight_grad(images, grads, geometry, case.groups)
    finally:
        engine.configure(threads=before)
    _, expected = oracles.conv2d_gradients(x, w, dy, case.stride, case.padding, case.dilation, case.groups)
    assert relative(dw, expected) <= (1e-5 if dtype == np.float32 else EXACT)
    assert set(MACS.values()) == {geometry.macs(case.n, *case.channels, case.groups)}
    return b"".join(np.ascontiguousarray(a.numpy()).tobytes() for a in (y, dx, dw))


@pytest.mark.parametrize("dtype", FLOATS)
def test_images_a_multiple_of_4_kib_apart(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stem's images, which would meet in one set of the cache, are copied; a view of every second column too."""
    monkeypatch.setattr(convolution, "L1_WAYS", 2)
    engine = alpha.engine("cpu")
    case = Case(5, (16, 16), (4, 60), (7, 7), (2, 2), (3, 3))
    x, w, _, _ = draw_data(case, dtype)
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding)
    images = alpha.tensor(x, engine=engine)
    spread = engine._spread(images, geometry, 60)  # type: ignore[attr-defined]
    assert spread.strides[0] * images.dtype.itemsize % 4096 and np.array_equal(spread.numpy(), x)
    wide = np.repeat(x, 2, axis=2)
    filters, expected = alpha.tensor(w, engine=engine), oracles.conv2d(x, w, case.stride, case.padding, (1, 1), 1)
    for view in (images, alpha.tensor(wide, engine=engine)[:, :, ::2]):
        y = engine.conv2d(view, filters, None, geometry, 1)
        assert relative(y, expected) <= (BOUND if dtype == np.float32 else EXACT)
    assert engine._spread(images, geometry, 2) is images  # type: ignore[attr-defined]  # too little work


@pytest.mark.parametrize("dtype", FLOATS)
def test_cropped_images_a_multiple_of_4_kib_apart(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are no whole number of lines, of images that begin at none."""
    monkeypatch.setattr(convolution, "L1_WAYS", 2)
    engine = alpha.engine("cpu")
    case = Case(5, (127, 8), (3, 60), (7, 7), (2, 2), (3, 3))
    x, w, _, _ = draw_data(case, dtype)
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding)
    images = alpha.tensor(np.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0))), engine=engine)[:, 1:]
    spread = engine._spread(images, geometry, 60)  # type: ignore[attr-defined]
    assert spread.strides[0] * images.dtype.itemsize % 4096 and np.array_equal(spread.numpy(), x)
    y = engine.conv2d(images, alpha.tensor(w, engine=engine), None, geometry, 1)
    expected = oracles.conv2d(x, w, case.stride, case.padding, (1, 1), 1)
    assert relative(y, expected) <= (BOUND if dtype == np.float32 else EXACT)


def test_filters_that_do_not_fit_are_told_before_they_are_read() -> None:
    """The kernels follow addresses: whatever calls the engine, each algorithm's filters are of the images' channels."""
    engine = alpha.engine("cpu")
    x = alpha.zeros((2, 8, 8, 32), engine=engine).contiguous(IMAGE_ORDER)
    geometry = Geometry.make((8, 8), (3, 3), padding=(1, 1))
    for algorithm in planner.names():
        with planner.use(algorithm), pytest.raises(ShapeError, match=r"expected filters \(32, 3, 3, 32\)"):
            engine.conv2d(x, alpha.zeros((32, 3, 3, 16), engine=engine), None, geometry, 1)


def test_winograd_computes_fewer_products_of_steps_and_of_five_taps() -> None:
    """By two results per tile and remainder: 25 for 36 products of 3 x 3 at stride 2, 49 for 100 of 5 x 5."""
    engine = alpha.engine("cpu")
    for filter, stride, dilation, factor in (
        (3, 2, 1, 25 / 36), (5, 1, 1, 49 / 100), (5, 2, 1, 49 / 100), (3, 1, 3, 16 / 36), (5, 1, 2, 49 / 100)
    ):  # fmt: skip
        pad = dilation * (filter // 2)
        case = Case(20, (24, 24), (32, 48), (filter, filter), (stride, stride), (pad, pad), (dilation, dilation))
        x, w, _, dy = (alpha.tensor(a, engine=engine) for a in draw_data(case, np.float32))
        x, dy = x.contiguous(IMAGE_ORDER), dy.contiguous(IMAGE_ORDER)
        geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
        with planner.use("winograd"):
            engine.conv2d(x, w, None, geometry, 1)
            engine.conv2d_input_grad(dy, w, geometry, 1)
        nominal = geometry.nominal * 20 * 32 * 48
        assert MACS["conv2d"] == MACS["conv2d_input_grad"] == pytest.approx(factor * nominal)


@pytest.mark.parametrize("staged_bytes", [0, 1 << 40])
def test_long_sums_of_winograd_are_cut(staged_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error's root of mean squares over 512 channels, with and without stages.

    Measured: 1.1e-6 of the results' where chains end at 128 channels, 2.0e-6 in one chain.
    """
    monkeypatch.setattr(winograd, "STAGED_BYTES", staged_bytes)
    winograd.plan.cache_clear()
    engine = alpha.engine("cpu")
    case = Case(8, (8, 8), (512, 64), (3, 3), padding=(1, 1))
    x, w, _, _ = draw_data(case, np.float32)
    geometry = Geometry.make(case.size, case.filter, padding=case.padding)
    images, filters = alpha.tensor(x, engine=engine).contiguous(IMAGE_ORDER), alpha.tensor(w, engine=engine)
    assert bool(winograd.plan(problem(8, (8, 8), 512, 64), 4).stages) == (staged_bytes == 0)
    with planner.use("winograd4"):
        y = engine.conv2d(images, filters, None, geometry, 1).numpy()
    winograd.plan.cache_clear()
    expected = oracles.conv2d(x, w, case.stride, case.padding, case.dilation, case.groups)
    assert np.sqrt(np.mean((y - expected) ** 2) / np.mean(expected**2)) <= 1.5e-6


def test_winograd_computes_fewer_products() -> None:
    engine = alpha.engine("cpu")
    case = Case(20, (8, 8), (32, 48), (3, 3), padding=(1, 1))
    x, w, _, dy = (alpha.tensor(a, engine=engine) for a in draw_data(case, np.float32))
    x, dy = x.contiguous(IMAGE_ORDER), dy.contiguous(IMAGE_ORDER)
    geometry = Geometry.make(case.size, case.filter, padding=case.padding)
    with planner.use("winograd"):
        engine.conv2d(x, w, None, geometry, 1)
        engine.conv2d_input_grad(dy, w, geometry, 1)
    tiles = 4 * 4
    assert MACS["conv2d"] == MACS["conv2d_input_grad"] == 16 * tiles * 20 * 32 * 48
    assert MACS["conv2d"] < geometry.macs(20, 32, 48) / 1.8
    with planner.use("winograd3"):
        engine.conv2d(x, w, None, geometry, 1)
        engine.conv2d_input_grad(dy, w, geometry, 1)
    assert MACS["conv2d"] == MACS["conv2d_input_grad"] == 25 * (3 * 3) * 20 * 32 * 48
    with planner.use("winograd4"):
        engine.conv2d(x, w, None, geometry, 1)
        engine.conv2d_input_grad(dy, w, geometry, 1)
    assert MACS["conv2d"] == MACS["conv2d_input_grad"] == 36 * (2 * 2) * 20 * 32 * 48
    assert MACS["conv2d"] < geometry.macs(20, 32, 48) / 3.1


@pytest.mark.parametrize("image_order", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "case",
    [
        Case(70, (7, 5), (3, 20), (3, 2), (2, 1), (1, 2), (1, 2)),
        Case(2, (9, 9), (3, 64), (7, 7), (2, 2), (3, 3)),
        Case(13, (4, 4), (6, 9), (3, 3), padding=(1, 1), groups=3),
        Case(1, (1, 1), (5, 7), (5, 5), padding=(2, 2)),
        Case(3, (8, 8), (4, 4), (2, 2), (3, 3)),  # some inputs meet no tap
        Case(20, (9, 40), (1, 33), (3, 7), (1, 2), (1, 3)),  # tiles of every height; columns in chunks
        Case(17, (6, 30), (7, 16), (3, 2), (2, 1), (2, 1), (2, 1)),
        Case(1, (5, 70), (2, 19), (2, 5), (1, 1), (0, 2)),  # one image: columns are summed
        Case(65, (6, 9), (3, 20), (5, 5), (2, 1), (2, 2)),  # parts of nine images, and of two at the end
        Case(9, (9, 8), (3, 40), (7, 7), (2, 2), (3, 3)),
        Case(5, (6, 7), (3, 33), (3, 3), padding=(1, 1)),
        Case(9, (8, 8), (8, 40), (3, 3), padding=(1, 1), groups=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("algorithm", ["tap_rows", "few_channels"])
def test_filter_gradient_of_few_channels(case: Case, dtype: Any, image_order: bool, algorithm: str) -> None:
    """Those of the algorithms that serve, whichever the planner would choose."""
    engine = alpha.engine("cpu")
    x, w, _, dy = draw_data(case, dtype)
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
    order = IMAGE_ORDER if image_order else None
    images, grads = (alpha.tensor(a, engine=engine).contiguous(order) for a in (x, dy))
    with planner.use(algorithm):
        if planner.choose(problem_of(WEIGHT_GRAD, images, grads, geometry, case.groups)).name != algorithm:
            pytest.skip("this algorithm does not serve")
        dw = engine.conv2d_weight_grad(images, grads, geometry, case.groups)
    _, expected = oracles.conv2d_gradients(x, w, dy, case.stride, case.padding, case.dilation, case.groups)
    assert relative(dw, expected) <= (1e-5 if dtype == np.float32 else EXACT)
    assert MACS["conv2d_weight_grad"] == geometry.macs(case.n, *case.channels, case.groups)


@settings(max_examples=60, deadline=None)
@given(
    case=cases(),
    images=st.sampled_from([1, 3, 9, 20]),
    channels=st.tuples(*[st.sampled_from([1, 5, 17, 40])] * 2),
    dtype=st.sampled_from([np.float32, np.float64]),
    limits=st.sampled_from([{"X_COPY": 1}, {"X_COPY": 2 << 10}, {"PIXEL": 1, "DY_COPY": 1 << 10}, {"BLOCK": 512}]),
)
def test_filter_gradient_in_many_blocks(
    case: Case, images: int, channels: tuple[int, int], dtype: Any, limits: dict[str, int]
) -> None:
    """Parts of the columns and of the rows, and strides' remainders that begin anywhere."""
    case = replace(case, n=images, channels=channels, groups=1)
    engine = alpha.engine("cpu")
    x, w, _, dy = draw_data(case, dtype)
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
    taps.plan.cache_clear()
    with pytest.MonkeyPatch.context() as patch, planner.use("taps"):
        for name, value in limits.items():
            patch.setattr(blocking if hasattr(blocking, name) else taps, name, value)
        dw = engine.conv2d_weight_grad(*(alpha.tensor(a, engine=engine) for a in (x, dy)), geometry, 1)
    taps.plan.cache_clear()
    steps = case.stride, case.padding, case.dilation, 1
    expected = oracles.conv2d_gradients(x, w, dy, *steps)[1]
    squares = oracles.conv2d_gradients(x**2, w, dy**2, *steps)[1]
    assert error(dw, expected, squares) <= (1e-5 if dtype == np.float32 else EXACT)
    assert MACS["conv2d_weight_grad"] == geometry.macs(case.n, *case.channels, 1)


@pytest.mark.parametrize("x_copy", [1, taps.X_COPY])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "case",
    [
        Case(16, (24, 24), (64, 64), (3, 3), padding=(12, 12), dilation=(12, 12)),
        Case(5, (24, 20), (33, 40), (3, 3), padding=(18, 18), dilation=(18, 18)),
        Case(9, (30, 9), (24, 16), (3, 2), (2, 1), (7, 2), (7, 3)),
        Case(8, (20, 31), (17, 19), (2, 4), (3, 2), (1, 5), (11, 4)),
    ],
    ids=str,
)
def test_filter_gradient_copies_only_the_rows_that_a_dilated_filter_reads(case: Case, dtype: Any, x_copy: int) -> None:
    """One output row at a time where there is room for no more: a row for each tap. Else what the room gives."""
    engine = alpha.engine("cpu")
    x, w, _, dy = draw_data(case, dtype)
    images, grads = (alpha.tensor(a, engine=engine).contiguous(IMAGE_ORDER) for a in (x, dy))
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
    taps.plan.cache_clear()
    with pytest.MonkeyPatch.context() as patch, planner.use("taps"):
        patch.setattr(taps, "X_COPY", x_copy)
        pack = taps.plan(problem_of(WEIGHT_GRAD, images, grads, geometry, 1)).pack
        dw = engine.conv2d_weight_grad(images, grads, geometry, 1)
    taps.plan.cache_clear()
    assert x_copy > 1 or (pack.bands, pack.band_rows) == (case.filter[0], 1)
    _, expected = oracles.conv2d_gradients(x, w, dy, case.stride, case.padding, case.dilation, 1)
    assert relative(dw, expected) <= (1e-5 if dtype == np.float32 else EXACT)
    assert MACS["conv2d_weight_grad"] == geometry.macs(case.n, *case.channels, 1)


@pytest.mark.parametrize("operator", [FORWARD, INPUT_GRAD])
def test_positions_in_several_passes(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's panels meet its blocks some at a time: every row and channel is computed once."""
    for name, value in {"FILTER_BYTES": 1, "MIN_PANEL_TASKS": 1000, "MIN_BLOCK_TASKS": 2, "ROWS": 8}.items():
        monkeypatch.setattr(positions, name, value)
    positions.plan.cache_clear()
    case = Case(3, (12, 11), (70, 70), (3, 3), (2, 2), (1, 1))
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding)
    sizes = positions.plan(dense_problem(operator, geometry, case.n, *case.channels, 1)).sizes
    assert sizes.blocks > 1
    assert sizes.together < sizes.panels
    check(case, np.float32, "positions")
    positions.plan.cache_clear()


@settings(max_examples=100, deadline=None)
@given(case=cases(), dtype=st.sampled_from([np.float32, np.float64]), image_order=st.booleans())
def test_taps_as_columns(case: Case, dtype: Any, image_order: bool) -> None:
    check(case, dtype, "columns", image_order)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("channels", [1, 2, 3, 5, 7])
def test_taps_as_columns_in_every_cut(channels: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of images with a rest, bands of rows with a rest, several panels, groups, positions of no tap."""
    for name, value in {"PRODUCTS": 1 << 10, "MAX_TASK_ROWS": 4, "MIN_TASKS": 1}.items():
        monkeypatch.setattr(columns, name, value)
    columns.plan.cache_clear()
    deconvolved = Case(23, (9, 8), (channels, 21), (4, 5), (2, 3), (1, 0))
    geometry = Geometry.make(deconvolved.size, deconvolved.filter, deconvolved.stride, deconvolved.padding)
    shape = dense_problem(INPUT_GRAD, geometry, deconvolved.n, *deconvolved.channels, 1)
    assert columns.serves(shape) and not columns.serves(replace(shape, operator=FORWARD))
    sizes = columns.plan(shape).sizes
    assert 1 < sizes.chunk < sizes.images and sizes.images % sizes.chunk and sizes.rows % sizes.band
    check(deconvolved, dtype, "columns")
    check(Case(7, (9, 7), (18, 2 * channels), (3, 5), (1, 1), (0, 1), (2, 2), groups=2), dtype, "columns")
    check(Case(1, (9, 7), (17, channels), (3, 3), (1, 1), (4, 4)), dtype, "columns")
    columns.plan.cache_clear()


@pytest.mark.usefixtures("same_figures")
def test_choice() -> None:
    """Winograd where it saves products; positions where images are few; filters of few channels as columns."""
    assert chosen(128, (16, 16), 64, 64) == "winograd4"
    assert chosen(128, (16, 16), 64, 64, operator=INPUT_GRAD) == "winograd4"
    assert chosen(128, (6, 9), 64, 64) == "winograd3"
    assert chosen(128, (2, 6), 64, 64) == "winograd"  # half of larger tiles is outside
    assert chosen(128, (2, 2), 500, 500) == "images"  # as many products as the direct way
    assert chosen(128, (16, 16), 64, 64, item=8) == "images"
    assert chosen(128, (16, 16), 64, 64, stride=2, operator=INPUT_GRAD) == "winograd"
    assert chosen(32, (16, 16), 64, 64, filter=(5, 5)) == "winograd"
    assert chosen(128, (16, 16), 64, 64, filter=(3, 1), stride=2) == "images"
    assert chosen(128, (16, 16), 64, 64, filter=(3, 1)) == "images"
    assert chosen(1, (16, 16), 64, 64, filter=(3, 1), stride=2) == "positions"
    few_lanes = ISA.lanes(4) == 4  # three channels all but fill a vector
    assert chosen(128, (32, 32), 3, 64, operator=WEIGHT_GRAD) == ("winograd4" if few_lanes else "tap_rows")
    dilated = Geometry.make((32, 32), (3, 3), padding=(2, 2), dilation=(2, 2))
    assert planner.choose(dense_problem(WEIGHT_GRAD, dilated, 128, 1, 64, 1)).name == "few_channels"
    assert chosen(128, (32, 32), 64, 64, item=8, operator=WEIGHT_GRAD) == "taps"
    assert chosen(128, (32, 32), 3, 64, operator=INPUT_GRAD) == "lanes"
    assert chosen(128, (32, 32), 64, 3) == "lanes"
    assert chosen(128, (32, 32), 3, 64) == "images"
    without_lanes = "positions" if few_lanes else "columns"  # one image is one lane
    assert chosen(1, (32, 32), 3, 64, stride=2, operator=INPUT_GRAD) == without_lanes
    assert not lanes.serves(problem(128, (32, 32), 64, 64, operator=INPUT_GRAD))


@pytest.mark.usefixtures("same_figures")
def test_use() -> None:
    """It holds within its block only, gives way where it cannot serve, and refuses other names."""
    small = problem(128, (2, 2), 500, 500)
    before = planner.choose(small)
    with planner.use("winograd"):
        assert planner.choose(small).name == "winograd"
        assert chosen(128, (2, 2), 500, 500, item=8) == ("panels" if ISA.name == "generic" else "images")
        with planner.use("images"):
            assert chosen(1, (16, 16), 64, 64) == "images"
    assert planner.choose(small) is before
    assert before.name == "images"
    with pytest.raises(
        ArgumentError,
        match=r"\[planner.use\] expected one of .*, images, .*, winograd4, winograd_words, lanes, columns, got 'fft'",
    ):
        planner.use("fft").__enter__()
