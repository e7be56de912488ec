"""What every convolution algorithm of an engine must do: those that are listed, and one that somebody adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
from alpha.conv.problem import FORWARD, INPUT_GRAD
from alpha.cpu import planner
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import problem_of
from alpha.cpu.convolution import MACS
from alpha.engine import IMAGE_ORDER, Engine
from alpha.geometry import Geometry
from alpha.tensor import Tensor
from tests import oracles
from tests.engine.test_conv import EXACT, Case, draw_data

# F(2, 3) adds up to four inputs and multiplies by 1/4 at most, and stays as near to float64 as direct sums do. Factors
# of F(4, 3) are up to 1.5 ** 3 on either side: measured, its error is five times as large, 1e-6 to 3e-6 of the greatest
# result at 16 to 512 channels (PyTorch's own sums: 0.5e-6 to 4e-6); that of F(3, 3) less than twice. So the bound for
# direct sums holds for all.
BOUND = 5e-6

COUNTERS = {"forward": "conv2d", "input_grad": "conv2d_input_grad", "weight_grad": "conv2d_weight_grad"}
"""Where ``MACS`` counts an operator."""


class Kit(NamedTuple):
    """An engine with its planner.

    Attributes:
        planner: the module.
        algorithms: the list.
        macs: the engine's count of multiply-adds.
        problem: of an operator, from x, dy, the filters, the geometry and the number of groups.
    """

    engine: Engine
    planner: Any
    algorithms: Sequence[Any]
    macs: Mapping[str, int]
    problem: Callable[[str, Tensor, Tensor, Tensor, Geometry, int], Any]


def cpu_kit() -> Kit:
    """The CPU engine's."""

    def problem(operator: str, x: Tensor, dy: Tensor, w: Tensor, geometry: Geometry, groups: int) -> Any:
        return problem_of(operator, x, dy, geometry.reached, groups)

    return Kit(alpha.engine("cpu"), planner, ALGORITHMS, MACS, problem)


@contextmanager
def taken(kit: Kit | None = None) -> Iterator[list[str]]:
    """The names of the algorithms that run within it on an engine, the CPU's if none is named, in order."""
    names: list[str] = []
    kit = kit or cpu_kit()
    with pytest.MonkeyPatch.context() as patched:
        for algorithm in kit.algorithms:

            def run(engine: Engine, *rest: Any, algorithm: Any = algorithm) -> int:
                if engine is kit.engine:  # kernels that check themselves have an engine of their own
                    names.append(algorithm.name)
                issued: int = type(algorithm).run(algorithm, engine, *rest)
                return issued

            patched.setattr(algorithm, "run", run)
        yield names


def check_algorithm(
    algorithm: Any, case: Case, dtype: Any, image_order: bool = True, kit: Kit | None = None
) -> set[str]:
    """Forces it for each of its operators that it serves in this case, which are returned; on the CPU by default.

    It is taken then, and its results are those of the definition. Its kernel counts what it issues; brute force counts
    the products that meet no zero of padding or dilation, and an exact algorithm issues no others.
    """
    kit = kit or cpu_kit()
    engine = kit.engine
    x, w, b, dy = draw_data(case, dtype)
    order = IMAGE_ORDER if image_order else None
    geometry = Geometry.make(case.size, case.filter, case.stride, case.padding, case.dilation)
    images, grads = (alpha.tensor(a, engine=engine).contiguous(order) for a in (x, dy))
    weights, bias = alpha.tensor(w, engine=engine), alpha.tensor(b, engine=engine)
    steps = (case.stride, case.padding, case.dilation, case.groups)
    pairs = oracles.nonzero_products(case.size, case.filter, case.stride, case.padding, case.dilation)
    served = set()
    for operator in algorithm.operators:
        if not algorithm.serves(kit.problem(operator, images, grads, weights, geometry, case.groups)):
            continue
        served.add(operator)
        with kit.planner.use(algorithm.name), taken(kit) as names:
            if operator == FORWARD:
                found = [
                    engine.conv2d(images, weights, None, geometry, case.groups),
                    engine.conv2d(images, weights, bias, geometry, case.groups, grads, 0.1),
                ]
                plain = oracles.conv2d(x, w, *steps)
                whole = plain + b + dy
                squares = oracles.conv2d(x**2, w**2, *steps) + b**2 + dy**2
                expected = [plain, np.where(whole > 0, whole, 0.1 * whole)]
            elif operator == INPUT_GRAD:
                total = alpha.tensor(x, engine=engine).contiguous(IMAGE_ORDER)
                found = [
                    engine.conv2d_input_grad(grads, weights, geometry, case.groups),
                    engine.conv2d_input_grad(grads, weights, geometry, case.groups, None, total),
                ]
                plain = oracles.conv2d_gradients(x, w, dy, *steps)[0]
                squares = oracles.conv2d_gradients(x, w**2, dy**2, *steps)[0] + x**2
                expected = [plain, plain + x]
            else:
                found = [engine.conv2d_weight_grad(images, grads, geometry, case.groups)]
                plain = oracles.conv2d_gradients(x, w, dy, *steps)[1]
                squares = oracles.conv2d_gradients(x**2, w, dy**2, *steps)[1]
                expected = [plain]
        assert names == [algorithm.name] * len(found)
        # The terms' own size: where few of them cancel, their sum is smaller than its error's source.
        size = max(np.abs(plain).max(), np.sqrt(squares.max()), 1e-30)
        for result, wanted in zip(found, expected, strict=True):
            assert np.abs(result.numpy() - wanted).max() / size <= (BOUND if dtype == np.float32 else EXACT)
        if algorithm.exact:
            assert kit.macs[COUNTERS[operator]] == pairs * case.n * case.channels[0] * case.channels[1] // case.groups
    return served


def draw_images(engine: Engine, rng: np.random.Generator, shape: Any, dtype: Any, whole: bool) -> Tensor:
    """In the engine's order without gaps, if whole; else row-major, or a slice of more channels, on four or off."""
    n, height, width, channels = shape
    if whole:
        return engine.dense(engine.from_numpy(rng.standard_normal(shape).astype(dtype)), IMAGE_ORDER)
    first = int(rng.choice([0, 1, 4]))
    more = 8 if first else 0
    wider = engine.from_numpy(rng.standard_normal((n, height, width, channels + more)).astype(dtype))
    return wider[..., first : first + channels]


def draw_filters(engine: Engine, rng: np.random.Generator, shape: Any, dtype: Any, whole: bool) -> Tensor:
    """From an address of their own, if whole; else perhaps from one element later."""
    first = 0 if whole else int(rng.choice([0, 1]))
    numbers = engine.from_numpy(rng.standard_normal(first + int(np.prod(shape))).astype(dtype))
    return numbers[first:].reshape(*shape)


def with_results(engine: Engine, operator: str, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """x and dy with what an operator makes where it makes it: dense, in the engine's order."""
    if operator == FORWARD:
        return x, engine.empty(dy.shape, dy.dtype, IMAGE_ORDER)
    return (engine.empty(x.shape, x.dtype, IMAGE_ORDER), dy) if operator == INPUT_GRAD else (x, dy)
