"""Kernel segregation in one launch: a transposed convolution writes each element of its result once, and no other.

KS-deconv-V2 splits a filter into stride x stride sub-kernels. The segregation that Tida et al. (arXiv 2502.20493) set
out from gives each sub-kernel as many results as the one with most has, so that results of odd sizes come with rows and
columns that nobody wants; theirs and ours run all sub-kernels in one launch, of exactly the elements that there are.

What is proven where, for every size, filter and stride from 1 to 9, padding from 0 to 9 and output padding below the
stride that leave a result, 31,865 axes in all:

- the geometry from which both engines make their tables names each element once, with exactly its products: all axes;
- the engines write each element exactly once, nothing beside the result, and the right numbers. By default every
  (filter, stride, padding, output padding) is met, 4,018 of them, each with one of its sizes; axes are met in pairs,
  as rows and as columns, 2,009 of them. ``ALPHA_TEST_SEGREGATION=all`` has every size too, 15,933 pairs.

The geometry's part takes some 6 s; the engines' some 6 s on the CPU and 20 s on the test driver, once their kernels are
compiled (on 2 cores), and with all sizes, of which there are eight times as many, as much longer.

Winograd's algorithm, which takes stride 1 and 2 on the CPU, has a test of its own: its sums are rounded, its writes are
counted alike.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

from alpha.conv.problem import INPUT_GRAD
from alpha.cpu import convolution as on_cpu
from alpha.cpu import planner
from alpha.cpu.conv import winograd
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import dense_problem
from alpha.cpu.engine import CPUEngine
from alpha.cu32 import convolution as on_cuda
from alpha.engine import IMAGE_ORDER, Engine
from alpha.geometry import Axis, Geometry
from alpha.tensor import Tensor, dense_strides

Array = np.ndarray[Any, Any]

FLOAT = np.dtype(np.float32)
MOST = 9
IMAGES = 2
ALL = os.environ.get("ALPHA_TEST_SEGREGATION") == "all"


# -- what is computed ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Steps:
    """One axis of a transposed convolution, with PyTorch's arguments."""

    size: int
    filter: int
    stride: int
    padding: int
    output_padding: int

    @property
    def result(self) -> int:
        """Elements of the result; none where it is 0 or less."""
        return (self.size - 1) * self.stride - 2 * self.padding + self.filter + self.output_padding

    @property
    def axis(self) -> Axis:
        """That of the convolution which is transposed."""
        return Axis(self.result, self.filter, self.stride, (self.padding, self.padding - self.output_padding))

    def scatter(self, source: Array, taps: Array) -> Array:
        """The result by the definition: each element of the source adds the filter, scaled, where it lies."""
        length = max((self.size - 1) * self.stride + self.filter, self.padding + self.result)
        found = np.zeros(length, np.int64)
        for o, value in enumerate(source):
            found[o * self.stride : o * self.stride + self.filter] += value * taps
        return found[self.padding : self.padding + self.result]

    @property
    def products(self) -> Array:
        """How many products each element of the result is the sum of."""
        return self.scatter(np.ones(self.size, np.int64), np.ones(self.filter, np.int64))


@cache
def every() -> tuple[Steps, ...]:
    """All axes."""
    numbers = range(1, MOST + 1)
    found = (
        Steps(size, filter, stride, padding, extra)
        for filter, stride in product(numbers, numbers)
        for padding, extra, size in product(range(MOST + 1), range(stride), numbers)
    )
    return tuple(steps for steps in found if steps.result >= 1)


def chosen() -> list[Steps]:
    """All axes, or of each (filter, stride, padding, output padding) one: every size comes up as often."""
    if ALL:
        return list(every())
    sizes: dict[tuple[int, ...], list[Steps]] = {}
    for steps in every():
        sizes.setdefault((steps.filter, steps.stride, steps.padding, steps.output_padding), []).append(steps)
    return [possible[turn % len(possible)] for turn, possible in enumerate(sizes.values())]


def pairs() -> Iterator[tuple[Steps, Steps]]:
    """The chosen axes, half of them as rows and half as columns, mixed: each comes up once or twice."""
    axes = chosen()
    order = np.random.default_rng(0).permutation(len(axes))
    half = (len(axes) + 1) // 2
    for row, column in zip(order[:half], order[-half:], strict=True):
        yield axes[row], axes[column]


@dataclass(frozen=True)
class Channels:
    """Channels of the source and of the result, and into how many groups they are split."""

    source: int
    result: int
    groups: int = 1


class Problem:
    """A transposed convolution of whole numbers, so small that float32 sums them exactly in any order.

    The result's first channel has filters of zeros: what is found there beside the bias of 1 tells how often an element
    was written, whatever lies there else. Source and filters are products of one factor an axis, and so is the result.
    """

    def __init__(self, rows: Steps, columns: Steps, channels: Channels) -> None:
        rng = np.random.default_rng(rows.size + 10 * columns.filter)
        self.rows, self.columns, self.channels = rows, columns, channels
        self.geometry = Geometry(rows.axis, columns.axis)
        self.shape = (IMAGES, rows.result, columns.result, channels.result)
        images = np.arange(1, IMAGES + 1)
        down, across, along = (rng.integers(1, 4, n) for n in (rows.size, columns.size, channels.source))
        high, wide = (rng.integers(1, 4, steps.filter) for steps in (rows, columns))
        mixed = rng.integers(1, 3, (channels.source, channels.result // channels.groups))
        mixed[:, 0] = 0
        self.source = np.einsum("n,h,w,d->nhwd", images, down, across, along).astype(np.float32)
        self.filters = np.einsum("h,w,dc->dhwc", high, wide, mixed).astype(np.float32)
        summed = along @ mixed if channels.groups == 1 else (along[:, None] * mixed).ravel()
        planes = rows.scatter(down, high), columns.scatter(across, wide)
        self.sums = np.einsum("n,h,w,c->nhwc", images, *planes, summed).astype(np.float32)

    @property
    def products(self) -> int:
        """Multiply-adds that meet no zero, counted by the definition."""
        pairs = int(self.rows.products.sum() * self.columns.products.sum())
        return pairs * IMAGES * self.channels.source * self.filters.shape[3]


# -- where it is written ---------------------------------------------------------------------------------------------

GUARD = 64
"""Elements before and behind a result that no kernel may touch: as many as keep it aligned."""

MARK = np.uint32(0x7FC5A5A5)
"""A NaN that no arithmetic makes."""


class Frame:
    """The memory of a result, in image order, between two guards; it holds a number, or the mark."""

    def __init__(self, engine: Engine, shape: tuple[int, ...], number: float | None) -> None:
        count = math.prod(shape)
        held = np.full(count + 2 * GUARD, MARK, np.uint32).view(np.float32)
        if number is not None:
            held[GUARD:-GUARD] = number
        self._whole = engine.from_numpy(held)
        self.result = self._whole.strided(GUARD, shape, dense_strides(shape, IMAGE_ORDER))

    def found(self) -> Array:
        """What was written into it; fails where a guard has changed, or an element still holds the mark."""
        bits = np.array(self._whole.numpy()).view(np.uint32)
        assert (bits[:GUARD] == MARK).all() and (bits[-GUARD:] == MARK).all(), "written beside the result"
        assert not (bits[GUARD:-GUARD] == MARK).any(), "not written"
        return np.array(self.result.numpy())


def stored(engine: Engine, problem: Problem, given: tuple[Tensor, ...], patch: pytest.MonkeyPatch) -> Array:
    """The result in memory of the test's own, which holds marks before."""
    frame, empty = Frame(engine, problem.shape, None), engine.empty
    taken = []

    def framed(shape: Any, dtype: Any = FLOAT, order: Any = None) -> Tensor:
        if tuple(shape) != problem.shape or order != IMAGE_ORDER or taken:
            return empty(shape, dtype, order)
        taken.append(frame)
        return frame.result

    with patch.context() as patched:
        patched.setattr(engine, "empty", framed)
        source, filters, bias = given
        made = engine.conv2d_input_grad(source, filters, problem.geometry, problem.channels.groups, bias)
    assert made is frame.result
    return frame.found()


BEFORE = 7.0


def added(engine: Engine, problem: Problem, given: tuple[Tensor, ...]) -> Array:
    """What is added to memory that holds a number: a second write of an element would add twice."""
    frame = Frame(engine, problem.shape, BEFORE)
    source, filters, bias = given
    made = engine.conv2d_input_grad(
        source, filters, problem.geometry, problem.channels.groups, bias, accumulate=frame.result
    )
    assert made is frame.result
    return frame.found() - BEFORE


def check(engine: Engine, problem: Problem, patch: pytest.MonkeyPatch) -> tuple[Array, Array]:
    """Counts the writes of a problem; what was stored and what was added, less the bias."""
    bias = np.ones(problem.channels.result, np.float32)
    given = tuple(engine.from_numpy(array) for array in (problem.source, problem.filters, bias))
    found = stored(engine, problem, given, patch), added(engine, problem, given)
    for result in found:
        writes = result[..., :: problem.filters.shape[3]]  # of the first channel of each group
        assert (writes == 1).all(), f"{problem.rows} x {problem.columns}: written {np.unique(writes)} times"
    return found[0] - 1, found[1] - 1


# -- the tests -------------------------------------------------------------------------------------------------------


def test_there_are_as_many_axes_as_said() -> None:
    assert len(every()) == 31_865
    by_parameters = {(one.filter, one.stride, one.padding, one.output_padding) for one in every()}
    met = [axis for pair in pairs() for axis in pair]
    assert {(one.filter, one.stride, one.padding, one.output_padding) for one in met} == by_parameters
    assert ALL or {one.size for one in met} == set(range(1, MOST + 1))


@pytest.mark.slow
def test_geometry_names_each_element_once() -> None:
    """Both ways in which tables list a result's elements, with their products, for all axes."""
    for steps in every():
        axis, products = steps.axis, steps.products.tolist()
        assert [len(met) for met in axis.by_input] == products
        named = [0] * steps.result
        for part in axis.parts:
            for i in part.inputs:
                named[i] += 1
        assert named == [1] * steps.result
        assert sum(len(run.inputs) for part in axis.parts for run in part.runs) == axis.useful == sum(products)


KINDS = (Channels(3, 2), Channels(16, 3), Channels(4, 4, 4))
"""For each of the kernels of cu32 that serve transposed convolutions: tiles, few results, depthwise."""

EXACT = (*(algorithm.name for algorithm in ALGORITHMS if algorithm.exact and INPUT_GRAD in algorithm.operators), None)
"""In turn: the CPU's algorithms that multiply nothing else, each where it serves, and its own choice among all."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=["tiles", "few results", "depthwise"])
def test_every_element_is_written_once(engine: Engine, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the right value; and by the engine's count only products without a zero are computed.

    What the CPU engine chooses itself may be an algorithm that multiplies others, and says so.
    """
    macs = {"cpu": on_cpu.MACS, "cu32:0": on_cuda.MACS}.get(engine.name)  # other engines do not count
    choose, chosen = planner.choose, []

    def noted(*arguments: Any) -> Any:
        chosen.append(choose(*arguments))
        return chosen[-1]

    monkeypatch.setattr(planner, "choose", noted)
    exact = 0
    for turn, (rows, columns) in enumerate(islice(pairs(), kind, None, len(KINDS))):
        problem = Problem(rows, columns, KINDS[kind])
        algorithm = EXACT[turn % len(EXACT)] if engine.name == "cpu" else None
        with planner.use(algorithm) if algorithm else nullcontext():
            results = check(engine, problem, monkeypatch)
        for result in results:
            np.testing.assert_array_equal(result, problem.sums, f"{rows} x {columns}")
        is_own_choice = engine.name == "cpu" and algorithm is None
        if macs is not None and not (is_own_choice and not chosen[-1].exact):
            assert macs["conv2d_input_grad"] == problem.products, f"{rows} x {columns}"
            exact += is_own_choice
    assert engine.name != "cpu" or exact > 50  # most of the engine's own choices are counted too


def test_winograd_writes_every_element_once(cpu: CPUEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sizes, paddings and output paddings of the filters and strides that it serves, alike on both axes."""
    served = 0
    for steps in every():
        problem = Problem(steps, steps, Channels(3, 2)) if steps.stride <= 2 else None
        if problem is None or not winograd.serves(dense_problem(INPUT_GRAD, problem.geometry, IMAGES, 2, 3, 1)):
            continue
        served += 1
        with planner.use("winograd"):
            results = check(cpu, problem, monkeypatch)
        for result in results:  # rounded sums: some 10 roundings each, of numbers up to some times the largest result
            np.testing.assert_allclose(result, problem.sums, rtol=0, atol=1e-5 * problem.sums.max())
    assert served == 309


def test_the_counts_see_what_is_wrong(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements written twice, not at all, and one too many: what the tests above would not be worth a thing without."""
    problem = Problem(Steps(3, 5, 2, 2, 0), Steps(4, 3, 2, 1, 1), KINDS[0])
    right = engine.conv2d_input_grad

    def twice(*given: Any, accumulate: Tensor | None = None) -> Tensor:
        return right(*given, accumulate=accumulate if accumulate is None else right(*given, accumulate=accumulate))

    def nowhere(*given: Any, accumulate: Tensor | None = None) -> Tensor:
        return accumulate if accumulate is not None else engine.empty(problem.shape, FLOAT, IMAGE_ORDER)

    def outside(*given: Any, accumulate: Tensor | None = None) -> Tensor:
        made = right(*given, accumulate=accumulate)
        engine.fill(made.strided(made.offset + made.numel(), (1,), (1,)), 0)
        return made

    for wrong, message in ((twice, "written .* times"), (nowhere, "not written"), (outside, "beside the result")):
        with monkeypatch.context() as patched, pytest.raises(AssertionError, match=message):
            patched.setattr(engine, "conv2d_input_grad", wrong)
            check(engine, problem, monkeypatch)
