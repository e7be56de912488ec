"""The planner's choices: explained, overridable, within what the kernels have, and sound at the sizes that matter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alpha.errors import ArgumentError
from alpha.geometry import Geometry
from cu32 import planner
from cu32.convolution import SOURCES
from cu32.planner import Problem, plan

H100 = 132
LAYER = Problem("forward", Geometry.make((16, 16), (3, 3), (1, 1), (1, 1)), 512, 64, 64, 1, "float", True, False, True)
OPERATORS = ("forward", "input_grad", "weight_grad")


def share_of_peak(problem: Problem) -> float:
    """What the model expects, as a share of one FMA a lane a cycle."""
    found = plan(problem, H100)
    products = problem.geometry.macs(problem.images, problem.in_channels, problem.out_channels)
    return products / (found.cycles * H100 * planner.FMAS)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("size", "channels"), [(16, 64), (8, 128), (4, 256), (2, 512)])
def test_the_layers_of_resnet18_keep_the_device_busy(operator: str, size: int, channels: int) -> None:
    geometry = Geometry.make((size, size), (3, 3), (1, 1), (1, 1))
    problem = replace(LAYER, operator=operator, geometry=geometry, in_channels=channels, out_channels=channels)
    found = plan(problem, H100)
    assert found.useful > 0.99
    assert found.blocks >= H100
    assert share_of_peak(problem) > 0.6


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
