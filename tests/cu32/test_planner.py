"""The planner's choices: explained, overridable, within what the kernels have, and sound at the sizes that matter."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32 import costs, planner
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.conv import tiles, tiles_gradient
from alpha.cu32.conv.algorithms import ALGORITHMS
from alpha.cu32.conv.problem import Aligned, Problem, dense_problem
from alpha.cu32.conv.tiles_gradient import TilesGradient
from alpha.cu32.costs import Chip, Job, Plan, TilePlan
from alpha.cu32.explain import explain
from alpha.cu32.products import Product
from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Geometry

H100 = Chip("NVIDIA H100 80GB HBM3", (9, 0), 132, 1_980_000_000, 232448, 233472)
A100 = Chip("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1_410_000_000, 166912, 167936)
OPERATORS = ("forward", "input_grad", "weight_grad")
MISALIGNED = Aligned(filters=False)


def layer(operator: str = "forward", images: int = 512, channels: Any = (64, 64), **geometry: Any) -> Problem:
    """A layer of 16 x 16 by 3 x 3 with padding 1, but for what is given."""
    sizes = {"size": (16, 16), "filter": (3, 3), "stride": (1, 1), "padding": (1, 1), **geometry}
    return dense_problem(operator, Geometry.make(*sizes.values()), images, *channels, 1)


LAYER = layer()


def plan(job: Job, chip: Chip = H100, high: bool = False) -> TilePlan:
    """The planner's, which is by tiles; ``high``: TF32 is allowed."""
    found = planner.plan(replace(job, high=True) if high else job, chip)  # type: ignore[type-var]
    assert isinstance(found, TilePlan)
    return found


def share_of_peak(problem: Problem) -> float:
    """What the model expects, as a share of one FMA a lane a cycle."""
    return problem.products / (plan(problem, H100).cycles * H100.multiprocessors * H100.fmas)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("size", "channels"), [(16, 64), (8, 128), (4, 256), (2, 512)])
def test_the_layers_of_resnet18_keep_the_device_busy(operator: str, size: int, channels: int) -> None:
    problem = layer(operator, channels=(channels, channels), size=(size, size))
    found = plan(problem, H100)
    assert found.useful > 0.99
    assert found.blocks >= H100.multiprocessors
    assert share_of_peak(problem) > 0.55  # a kernel that never waits has 0.84 of it


def test_a_small_map_of_many_channels_is_split() -> None:
    """64 tiles of 64 x 64 would leave half the multiprocessors idle."""
    small = layer(images=128, channels=(512, 512), size=(2, 2))
    assert plan(small, H100).parts > 1
    assert plan(replace(small, adds=True), H100).parts > 1  # who joins the parts adds them to what is there


def test_the_way_of_loading() -> None:
    assert plan(LAYER, H100).load == "VECTOR"
    assert plan(layer(channels=(3, 64)), H100).load == "FLAT"
    assert plan(layer(channels=(4, 64)), H100).load == "FLAT"
    assert plan(layer(channels=(515, 64)), H100).load == "SCALAR"
    assert plan(replace(LAYER, aligned=MISALIGNED), H100).load == "SCALAR"
    assert plan(replace(LAYER, x_strides=(1026, 64, 64 * 512 * 16)), H100).load == "SCALAR"
    wide = replace(layer(channels=(3, 64)), x_strides=(1 << 22, 48, 3))
    assert wide.wide and plan(wide, H100).load == "SCALAR"
    assert plan(replace(LAYER, item=8), H100).tile == tiles.DOUBLE


def test_a_plan_explains_itself() -> None:
    text = str(plan(LAYER, H100))
    for part in ("forward of 512 x (16, 16)", "64 to 64 channels", "vector loads", "blocks", "cycles"):
        assert part in text


@pytest.mark.parametrize("operator", OPERATORS)
def test_it_can_be_overridden(operator: str) -> None:
    problem = layer(operator)
    free = plan(problem, H100)
    with planner.use(tile=(64, 32), parts=5):
        forced = plan(problem, H100)
        assert (forced.tile.rows, forced.tile.columns, forced.parts) == (64, 32, 5)
        assert plan(replace(problem, adds=True), H100).parts == 5
    assert plan(problem, H100) == free
    with pytest.raises(ArgumentError, match="parts >= 1"), planner.use(parts=0):
        pass


def test_an_algorithm_can_be_named() -> None:
    assert plan(LAYER, H100, high=True).algorithm == "patches"
    with planner.use("tiles"):
        assert plan(LAYER, H100, high=True).algorithm == "tiles"
    with planner.use("tensor_cores", tile=(64, 64), parts=3):
        found = plan(LAYER, H100, high=True)
        assert (found.algorithm, found.tile.rows, found.tile.columns, found.parts) == ("tensor_cores", 64, 64, 3)
        found = plan(LAYER, H100)  # TF32 is not allowed there
        assert (found.algorithm, found.load, found.tile.rows, found.tile.columns) == ("tiles", "VECTOR", 64, 64)
    with pytest.raises(ArgumentError, match=r"\[planner.use\] expected one of depthwise, few_results, .*, got 'fft'"):
        planner.use("fft")


def test_an_algorithm_that_is_always_taken_gives_way_to_the_one_that_is_named() -> None:
    """Filters of a channel's own are read once, but nothing keeps tiles from computing them."""
    depthwise = dense_problem("forward", LAYER.geometry, 8, 32, 32, 32)
    assert planner.plan(depthwise, H100).algorithm == "depthwise"
    assert [one.name for one in planner.candidates(depthwise)] == ["depthwise", "tiles"]
    with planner.use("tiles"):
        assert planner.plan(depthwise, H100).algorithm == "tiles"
    with planner.use("few_results"):  # which does not serve
        assert planner.plan(depthwise, H100).algorithm == "depthwise"


def test_every_problem_is_served() -> None:
    """By the algorithms without a bound, whatever the sizes, dtypes and alignments."""
    for operator in OPERATORS:
        for odd in (replace(layer(operator, channels=(5, 7)), item=8), replace(LAYER, operator=operator, adds=True)):
            assert planner.candidates(odd)[-1].name == "tiles"
    assert len({(one.name, operator) for one in ALGORITHMS for operator in one.operators}) == sum(
        len(one.operators) for one in ALGORITHMS
    )


def test_a_product_is_planned_and_overridden_in_the_same_way() -> None:
    product = Product(4096, 4096, 4096, 1, 4, True, ("ACROSS", "ALONG"))
    found = plan(product, H100)
    assert (found.tile.rows, found.parts) == (128, 1) and "1 x (4096, 4096) by (4096, 4096)" in str(found)
    with planner.use(tile=(64, 64), parts=4):
        forced = plan(product, H100)
        assert (forced.tile.rows, forced.parts) == (64, 4)


# -- the model -------------------------------------------------------------------------------------------------------


def test_the_busiest_machine_by_brute_force(rng: np.random.Generator) -> None:
    for _ in range(200):
        machines = int(rng.integers(1, 9))
        pieces = [(int(n), int(length)) for n, length in rng.integers((1, 0), (99, 50), size=(rng.integers(1, 5), 2))]
        loads = [0] * machines
        for number, length in pieces:
            for _ in range(number):
                loads[loads.index(min(loads))] += length
        assert costs.busiest(pieces, machines) == max(loads)


def test_splits_make_whole_waves() -> None:
    """9 taps in 58 parts are 522 blocks for 528 places; powers of two fill 87 % of their waves at best."""
    found = plan(layer("weight_grad"), H100)
    waves = found.blocks / H100.multiprocessors
    assert waves / np.ceil(waves) > 0.95


def test_more_work_costs_more() -> None:
    for operator in OPERATORS:
        cycles = [plan(layer(operator, n), H100).cycles for n in (64, 128, 256, 512, 1024)]
        assert all(2.2 > after / before > 1.2 for before, after in pairwise(cycles))


def test_nothing_is_faster_than_memory() -> None:
    """A 1x1 convolution of 16 channels: 4 operations per byte."""
    thin = layer(channels=(16, 16), size=(64, 64), filter=(1, 1), padding=(0, 0))
    found = plan(thin, H100)
    assert found.cycles >= (thin.operands + thin.results) * 4 / (costs.MEMORY * H100.multiprocessors)


def test_memory_for_parts_has_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 parts of 256 x 256 filters would take 144 MiB to save less than 4 % of the time."""
    job = layer("weight_grad", 256, (256, 256), size=(32, 32), stride=(2, 2))
    cheap = TilesGradient().plans(job, H100)[0]
    monkeypatch.setattr(costs, "PRICE", 1 << 60)
    fast = TilesGradient().plans(job, H100)[0]
    assert 4 * cheap.parts * job.results <= 64 << 20 < 4 * fast.parts * job.results
    assert fast.cycles <= cheap.cycles < 1.04 * fast.cycles


def test_tensor_cores_are_taken_where_they_are_faster() -> None:
    old = replace(
        A100, capability=(8, 6), multiprocessors=84, shared_per_block=101376, shared_per_multiprocessor=102400
    )
    speeds = {chip: plan(LAYER, chip).cycles / plan(LAYER, chip, high=True).cycles for chip in (H100, A100, old)}
    assert speeds[H100] > 2 and speeds[A100] > 3  # an A100 has half the float32 units
    assert 1 <= speeds[old] < 1.6  # as many multiply-adds as without


def test_the_cases_of_the_issue_keep_the_device_busy() -> None:
    """KS-deconv-V2 with stride 2: 3x3 padding 1 and 5x5 padding 2, maps of 128 to 2, one amount of work."""
    for filter in (3, 5):
        for size, channels in zip((128, 64, 32, 24, 16, 8, 4, 2), (64, 64, 128, 128, 256, 256, 512, 512), strict=True):
            images = max(1, round(38.65e9 / (size * size * filter * filter * channels * channels)))
            sizes = {"size": (2 * size,) * 2, "filter": (filter,) * 2, "padding": (filter // 2,) * 2}
            problem = layer("input_grad", images, (channels, channels), **sizes, stride=(2, 2))
            found = plan(problem, H100)
            assert found.useful > 0.9 and found.blocks > 4 * H100.multiprocessors and found.parts == 1
            assert share_of_peak(problem) > 0.65


# -- explain ---------------------------------------------------------------------------------------------------------


def test_explain_tells_all(cu32: DeviceEngine) -> None:
    sizes: dict[str, Any] = {"x_shape": (8, 6, 6, 16), "w_shape": (32, 3, 3, 16), "stride": 2, "padding": 1}
    for operator, name in (("forward", "ConvV2"), ("input_grad", "KS-deconv-V2"), ("weight_grad", "Sk-dilated-V2")):
        told = explain(cu32, operator, **sizes)
        assert told.algorithm == name and told.problem.startswith(operator)
        assert told.nominal == 2 * 8 * 3 * 3 * 9 * 16 * 32
        assert told.useful == 2 * 8 * 8 * 8 * 16 * 32  # a row of taps less at one side of each axis
        assert told.predicted_ms > 0
        assert told.name == ("threefold" if operator == "input_grad" else "tiles")  # whose sums have 288 terms
        for part in (name, f"choice: {told.name}, conv", "tiles of", "loads", "part", "blocks", "GFLOP", "predicted"):
            assert part in str(told)
    with planner.use(tile=(64, 64)):
        assert "tiles of 64 x 64" in explain(cu32, "forward", **sizes).choice
    told = explain(cu32, "matmul", (5, 64, 32), (32, 48))
    assert told.useful == told.nominal == 2 * 5 * 64 * 32 * 48 and "5 x (64, 32) by (32, 48)" in str(told)
    assert explain(cu32, "matmul", (64, 32), (32, 1)).choice.startswith("gemv.cu")


def test_explain_refuses_what_does_not_fit(cu32: DeviceEngine) -> None:
    with pytest.raises(ArgumentError, match=r"\[explain\] expected an operator of forward, .* got 'backward'"):
        explain(cu32, "backward", (1, 2, 2, 4), (4, 1, 1, 4))
    with pytest.raises(ShapeError, match=r"\[explain\] .* got \(1, 2, 2, 4\) and \(4, 1, 1, 3\)"):
        explain(cu32, "forward", (1, 2, 2, 4), (4, 1, 1, 3))
    with pytest.raises(ShapeError, match=r"\[explain\] .* got \(3, 4\) and \(3, 4\)"):
        explain(cu32, "matmul", (3, 4), (3, 4))


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "options"),
    [
        ((4, 6, 5, 8), (12, 3, 3, 8), {"stride": 2, "padding": 1}),
        ((4, 6, 5, 3), (16, 3, 3, 3), {"padding": 1}),
        ((4, 6, 5, 16), (2, 3, 3, 16), {"padding": 1}),
        ((2, 6, 5, 8), (6, 3, 3, 4), {"groups": 2}),
        ((2, 6, 5, 8), (8, 3, 3, 1), {"groups": 8}),
        ((2, 7, 7, 12), (10, 3, 2, 12), {"dilation": (1, 2)}),
    ],
)
def test_explain_is_about_what_the_operators_do(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, x_shape: Any, w_shape: Any, options: dict[str, Any]
) -> None:
    jobs: list[Problem] = []
    launched: list[str] = []
    choose, launch = planner.chosen, cu32.launch_packed

    def noting(engine: DeviceEngine, job: Problem, run: Any) -> Plan:
        if engine is cu32:  # kernels that check themselves have an engine of their own
            jobs.append(job)
        return choose(engine, job, run)

    def recording(source: Source, *rest: Any, **named: Any) -> None:
        launched.append(f"{source.name}.cu")
        launch(source, *rest, **named)

    monkeypatch.setattr(planner, "chosen", noting)
    monkeypatch.setattr(cu32, "launch_packed", recording)
    x, w = (cu32.from_numpy(np.ones(shape, np.float32)).requires_grad_() for shape in (x_shape, w_shape))
    alpha.functions.conv2d(x, w, **options).sum().backward()
    told = {operator: explain(cu32, operator, x_shape, w_shape, **options) for operator in OPERATORS}
    kernels = {explanation.choice.split(",")[0] for explanation in told.values()}
    assert kernels == {name for name in launched if name.startswith(("conv.", "conv_weight", "depthwise", "few_"))}
    assert [job.operator for job in jobs] == ["forward", "weight_grad", "input_grad"]
    assert [planner.choose(job, cu32).name for job in jobs] == [told[job.operator].name for job in jobs]


def test_every_choice_is_a_source_that_is_built_ahead() -> None:
    listed = {str(source) for source in (*tiles.SOURCES, *tiles_gradient.SOURCES)}
    for name, module in (("conv.cu", tiles), ("conv_weight.cu", tiles_gradient)):
        for load, of_load in module.TILES.items():
            for tile in of_load:
                macros = [f"{key}={value}" for key, value in tile.macros.items()]
                assert any(
                    text.startswith(name) and f"LOAD={load}" in text and all(macro in text for macro in macros)
                    for text in listed
                )
