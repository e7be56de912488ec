"""The planner's choices: explained, overridable, within what the kernels have, and sound at the sizes that matter."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32 import costs, planner, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import Source
from alpha.cu32.convolution import SOURCES
from alpha.cu32.costs import Chip, Job, Plan
from alpha.cu32.explain import _problem, explain
from alpha.cu32.planner import Problem, plan
from alpha.cu32.products import Product
from alpha.errors import ArgumentError, ShapeError
from alpha.geometry import Geometry

H100 = Chip("NVIDIA H100 80GB HBM3", (9, 0), 132, 1_980_000_000, 232448, 233472)
A100 = Chip("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1_410_000_000, 166912, 167936)
LAYER = Problem("forward", Geometry.make((16, 16), (3, 3), (1, 1), (1, 1)), 512, 64, 64, 1, "float", True, False, True)
OPERATORS = ("forward", "input_grad", "weight_grad")


def share_of_peak(problem: Problem) -> float:
    """What the model expects, as a share of one FMA a lane a cycle."""
    return problem.products / (plan(problem, H100).cycles * H100.multiprocessors * H100.fmas)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("size", "channels"), [(16, 64), (8, 128), (4, 256), (2, 512)])
def test_the_layers_of_resnet18_keep_the_device_busy(operator: str, size: int, channels: int) -> None:
    geometry = Geometry.make((size, size), (3, 3), (1, 1), (1, 1))
    problem = replace(LAYER, operator=operator, geometry=geometry, in_channels=channels, out_channels=channels)
    found = plan(problem, H100)
    assert found.useful > 0.99
    assert found.blocks >= H100.multiprocessors
    assert share_of_peak(problem) > 0.55  # a kernel that never waits has 0.84 of it


def test_a_small_map_of_many_channels_is_split() -> None:
    """64 tiles of 128 x 128 would leave half the multiprocessors idle."""
    geometry = Geometry.make((2, 2), (3, 3), (1, 1), (1, 1))
    assert plan(replace(LAYER, geometry=geometry, in_channels=512, out_channels=512), H100).parts > 1
    assert plan(replace(LAYER, geometry=geometry, in_channels=512, out_channels=512, splits=False), H100).parts == 1


def test_the_way_of_loading() -> None:
    assert plan(LAYER, H100).load == "VECTOR"
    assert plan(replace(LAYER, in_channels=3, vector=False), H100).load == "FLAT"
    assert plan(replace(LAYER, in_channels=4), H100).load == "FLAT"
    assert plan(replace(LAYER, in_channels=515, vector=False), H100).load == "SCALAR"
    assert plan(replace(LAYER, in_channels=3, vector=False, wide=True), H100).load == "SCALAR"
    assert plan(replace(LAYER, real="double", vector=False), H100).tile == planner.DOUBLE


def test_a_plan_explains_itself() -> None:
    text = str(plan(LAYER, H100))
    for part in ("forward of 512 x (16, 16)", "64 to 64 channels", "vector loads", "blocks", "cycles"):
        assert part in text


@pytest.mark.parametrize("operator", OPERATORS)
def test_it_can_be_overridden(operator: str) -> None:
    problem = replace(LAYER, operator=operator)
    free = plan(problem, H100)
    with planner.use(tile=(64, 32), parts=5):
        forced = plan(problem, H100)
        assert (forced.tile.rows, forced.tile.columns, forced.parts) == (64, 32, 5)
        assert plan(replace(problem, splits=False), H100).parts == 1
    assert plan(problem, H100) == free
    with pytest.raises(ArgumentError, match="parts >= 1"), planner.use(parts=0):
        pass


def test_the_way_of_loading_can_be_named() -> None:
    assert plan(LAYER, H100, high=True).load == tf32.LOAD
    with planner.use(load="VECTOR"):
        assert plan(LAYER, H100, high=True).load == "VECTOR"
    with planner.use(load=tf32.LOAD, tile=(64, 64), parts=3):
        found = plan(LAYER, H100, high=True)
        assert (found.load, found.tile.rows, found.tile.columns, found.parts) == (tf32.LOAD, 64, 64, 3)
        found = plan(LAYER, H100)  # TF32 is not allowed there
        assert (found.load, found.tile.rows, found.tile.columns) == ("VECTOR", 64, 64)


def test_a_product_is_planned_and_overridden_in_the_same_way() -> None:
    product = Product(4096, 4096, 4096, 1, "float", True, ("ACROSS", "ALONG"))
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
    found = plan(replace(LAYER, operator="weight_grad"), H100)
    waves = found.blocks / H100.multiprocessors
    assert waves / np.ceil(waves) > 0.95


def test_more_work_costs_more() -> None:
    for operator in OPERATORS:
        cycles = [plan(replace(LAYER, operator=operator, images=n), H100).cycles for n in (64, 128, 256, 512, 1024)]
        assert all(2.2 > after / before > 1.2 for before, after in pairwise(cycles))


def test_nothing_is_faster_than_memory() -> None:
    """A 1x1 convolution of 16 channels: 4 operations per byte."""
    thin = replace(LAYER, geometry=Geometry.make((64, 64), (1, 1)), in_channels=16, out_channels=16)
    found = plan(thin, H100)
    assert found.cycles >= (thin.operands + thin.results) * 4 / (costs.MEMORY * H100.multiprocessors)


def test_memory_for_parts_has_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 parts of 256 x 256 filters would take 144 MiB to save less than 1 % of the time."""
    geometry = Geometry.make((32, 32), (3, 3), (2, 2), (1, 1))
    job = replace(LAYER, operator="weight_grad", geometry=geometry, images=256, in_channels=256, out_channels=256)
    cheap = costs.plans(job, H100)[0]
    monkeypatch.setattr(costs, "PRICE", 1 << 60)
    fast = costs.plans(job, H100)[0]
    assert 4 * cheap.parts * job.results <= 64 << 20 < 4 * fast.parts * job.results
    assert fast.cycles <= cheap.cycles < 1.02 * fast.cycles


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
            geometry = Geometry.make((2 * size,) * 2, (filter,) * 2, (2, 2), (filter // 2,) * 2)
            images = max(1, round(38.65e9 / (size * size * filter * filter * channels * channels)))
            problem = Problem("input_grad", geometry, images, channels, channels, 1, "float", True, False, True)
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
        for part in (name, "tiles of", "loads", "part", "blocks", "GFLOP", "predicted"):
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
    jobs: list[Job] = []
    launched: list[str] = []
    choose, launch = planner.chosen, cu32.launch

    def noting(engine: DeviceEngine, job: Job, run: Any) -> Plan:
        if engine is cu32:  # kernels that check themselves have an engine of their own
            jobs.append(job)
        return choose(engine, job, run)

    def recording(source: Source, *rest: Any, **named: Any) -> None:
        launched.append(f"{source.name}.cu")
        launch(source, *rest, **named)

    monkeypatch.setattr(planner, "chosen", noting)
    monkeypatch.setattr(cu32, "launch", recording)
    x, w = (cu32.from_numpy(np.ones(shape, np.float32)).requires_grad_() for shape in (x_shape, w_shape))
    alpha.functions.conv2d(x, w, **options).sum().backward()
    arguments = [options.get(name, default) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    groups = options.get("groups", 1)
    told = {operator: explain(cu32, operator, x_shape, w_shape, **options) for operator in OPERATORS}
    kernels = {explanation.choice.split(",")[0] for explanation in told.values()}
    assert kernels == {name for name in launched if name.startswith(("conv.", "conv_weight", "depthwise", "few_"))}
    planned = {repr(_problem(operator, x_shape, w_shape, *arguments, groups)) for operator in OPERATORS}
    assert {repr(job) for job in jobs} == {
        text for text, operator in zip(sorted(planned), sorted(OPERATORS), strict=True)
        if told[operator].choice.startswith("conv")
    }  # fmt: skip


def test_every_choice_is_a_source_that_is_built_ahead() -> None:
    listed = {str(source) for source in SOURCES}
    for name, tiles in (("conv.cu", planner.GATHER), ("conv_weight.cu", planner.LEAP)):
        for load, of_load in tiles.items():
            for tile in of_load:
                macros = [f"{key}={value}" for key, value in tile.macros.items()]
                assert any(
                    text.startswith(name) and f"LOAD={load}" in text and all(macro in text for macro in macros)
                    for text in listed
                )
