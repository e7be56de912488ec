"""What a launch may have at most: extents of a grid, sums counted in 32 bits, counters that blocks share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.cu32 import convolution, planner
from alpha.cu32.base import DeviceEngine, Launch
from alpha.cu32.compiler import Source
from alpha.cu32.conv import depthwise_gradient, tiles_gradient
from alpha.cu32.convolution import MACS
from alpha.engine import Epilogue, RunningStatistics
from alpha.errors import EngineError
from alpha.tensor import Tensor
from benchmarks.common import Setup
from benchmarks.sides import AlphaSide
from tests import oracles
from tests.cu32.algorithms import cuda_kit
from tests.cu32.test_convolution import Case, check, compute, forget, geometry_of
from tests.engine.algorithms import taken

FILL = 'extern "C" __global__ void fill(float* x) { x[0] = 1.0f; }'


@pytest.mark.parametrize("grid", [(2**31, 1, 1), (1, 65536, 1), (1, 1, 65536), 2**31, (2**31,), (1, 65536)], ids=str)
def test_a_grid_that_no_device_takes_is_refused(cu32: DeviceEngine, grid: Any) -> None:
    run = cu32.kernel(FILL, "fill")
    x = cu32.empty((1,))
    with pytest.raises(
        EngineError, match=r"^\[cu32\] expected a grid of at most 2147483647 x 65535 x 65535 blocks for f"
    ):
        run(grid, 1, x)
    run((1, 65535, 1), 1, x)
    assert cu32.to_numpy(x) == [1.0]


FILTERS = [
    Case(3, (7, 8), (16, 20), (3, 4), (1, 1), (1, 1)),  # several rows of the filter per piece
    Case(2, (5, 9), (8, 12), (2, 7), (1, 1), (0, 2)),  # a row is more than a piece
    Case(2, (9, 9), (24, 16), (3, 3), (2, 1), (1, 1), (1, 2), 2),
]


@pytest.mark.parametrize("case", FILTERS, ids=str)
@pytest.mark.parametrize("parts", [1, 3])
def test_a_filter_of_more_taps_than_a_grid_has_rows(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, case: Case, parts: int
) -> None:
    seen: list[int] = []
    launch = cu32.launch_packed

    def note(source: Source, kernel: str, grid: Any, *rest: Any, **options: Any) -> None:
        if kernel == "conv_weight":
            seen.append(grid[1])
        launch(source, kernel, grid, *rest, **options)

    with monkeypatch.context() as patch, planner.use(parts=parts):
        patch.setattr(tiles_gradient, "MOST_TAPS", 5)
        patch.setattr(cu32, "launch_packed", note)
        check(cu32, case)
    taps = case.filter[0] * case.filter[1]
    assert len(seen) >= 2 and sum(seen) == taps and max(seen) <= 5


def test_a_depthwise_filter_of_more_passes_than_a_grid_has_rows(
    cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(2, (8, 8), (12, 12), (5, 5), (1, 1), (1, 1), (1, 1), 12)
    check(cu32, case)
    monkeypatch.setattr(depthwise_gradient, "MAX_GRID_YZ", 3)
    forget()
    with taken(cuda_kit(cu32)) as names:
        check(cu32, case)
    assert names == ["depthwise", "depthwise", "tiles"]
    forget()


@pytest.mark.parametrize("case", FILTERS, ids=str)
def test_more_terms_than_32_bits_count(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """The images are summed over in pieces, by every kernel that there is for filter gradients."""
    positions = int(np.prod(cu32_output(case)))
    monkeypatch.setattr(convolution, "TERMS_LIMIT", 2 * positions)  # one image per piece
    check(cu32, case)
    compute(cu32, case, np.float32)
    pairs = oracles.nonzero_products(case.size, case.filter, case.stride, case.padding, case.dilation)
    assert MACS["conv2d_weight_grad"] == pairs * case.n * case.channels[0] * case.channels[1] // case.groups
    monkeypatch.setattr(convolution, "TERMS_LIMIT", positions)
    with pytest.raises(EngineError, match=rf"expected fewer than {positions} positions of an output image, got"):
        compute(cu32, case, np.float32)


def cu32_output(case: Case) -> tuple[int, int]:
    """The size of an output image."""
    return geometry_of(case).output


def test_streams_do_not_share_counters(cu32: DeviceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks find out by counting which of them is the last: kernels of two streams run at once, and must not mix."""
    x = alpha.tensor(np.ones((20_000, 3), np.float32), engine=cu32)
    counted = {"reduce_sum": 3, "statistics": None, "channel_sums": None}
    seen: dict[str, set[int]] = {}
    launch, run = cu32.launch, cu32.run

    def look(kernel: str, tensors: Any) -> None:
        if kernel in counted:
            counters = [t for t in tensors if isinstance(t, Tensor) and t.dtype == np.int32]
            seen.setdefault(kernel, set()).update(t.address for t in counters)

    def note(source: Source, kernel: str, grid: Any, block: Any, *rest: Any, **options: Any) -> None:
        look(kernel, rest)
        launch(source, kernel, grid, block, *rest, **options)

    def note_run(planned: Launch, tensors: Any, *numbers: float) -> None:
        look(planned.kernel, tensors)
        run(planned, tensors, *numbers)

    def work() -> list[float]:
        sums = [
            x.sum(),
            cu32.channel_sum(x).sum(),
            cu32.batch_norm(x, RunningStatistics(), 1e-5, Epilogue(), None)[0].sum(),
        ]
        return [value.item() for value in sums]

    monkeypatch.setattr(cu32, "launch", note)
    monkeypatch.setattr(cu32, "run", note_run)
    first = work()
    with cu32.device.context() as driver:
        other = driver.Stream(1)
    monkeypatch.setattr(cu32.device, "stream", other)
    assert work() == first == [60_000.0, 60_000.0, 0.0]
    monkeypatch.undo()
    assert work() == first  # the first stream's are as they were
    assert seen.keys() == counted.keys() and all(len(addresses) == 2 for addresses in seen.values())


def test_a_graph_that_is_measured_has_its_scratch_to_itself(cu32: DeviceEngine) -> None:
    """What the pool hands out after a capture is not what a replay writes its partial sums to."""
    side = AlphaSide(Setup("cu32", 1, graph=True))
    x = alpha.tensor(np.arange(60_000, dtype=np.float32).reshape(20_000, 3), engine=cu32)
    try:
        replay: Any = side.graphed(lambda: x.sum(0))
        others = [alpha.full((size,), 7.0, engine=cu32) for size in (16, 64, 256, 1024, 4096, 16384) for _ in range(8)]
        for _ in range(3):
            result = replay()
        assert np.array_equal(result.numpy(), x.numpy().sum(0, dtype=np.float64).astype(np.float32))
        for other in others:
            assert (other.numpy() == 7.0).all()
    finally:
        alpha.set_default_engine("cpu")
