"""Products whose factors are rounded to bfloat16: two factors to a word of 32 bits, both products added in float32.

The algorithms move words as they move float32 numbers, and the micro-kernel's multiply-add becomes VDPBF16PS: channels,
or whatever is summed over, are then half as many. Words are made in one pass over memory; filters in inference keep
theirs. A float32 algorithm is taken where it is faster even so, as Winograd's may be. Where the processor lacks the
instruction, float32 algorithms multiply factors that are rounded before.

Winograd's products round factors themselves, after their sums. Images of bfloat16 are words already where their
channels are even, and Winograd's algorithms read and write them as they lie; others convert them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from alpha.composed.arrays import cast
from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD, dense_strides
from alpha.cpu import figures, isa, planner
from alpha.cpu.base import HostEngine
from alpha.cpu.conv import filters
from alpha.cpu.conv.algorithm import Algorithm, Call
from alpha.cpu.conv.problem import POINT, Problem
from alpha.cpu.kernels import pairs as kernels
from alpha.cpu.kernels.pairs import WORD
from alpha.dtypes import float32, is_brain
from alpha.engine import IMAGE_ORDER
from alpha.precision import get_float32_precision
from alpha.tensor import Tensor

ITEM = WORD.itemsize
"""Bytes of a word, and of a float32 number."""

TASK_NUMBERS = 1 << 14
"""Numbers that a task rounds, about."""

PASS_BYTES = 6
"""Bytes that are read and written to make half a word of a float32 number."""

NOTE, EMULATED = "factors rounded to bfloat16, by VDPBF16PS", "factors rounded to bfloat16, VDPBF16PS emulated"


def are_wanted(item: int) -> bool:
    """Whether products of numbers of so many bytes may round their factors."""
    return item == ITEM and get_float32_precision() == "medium"


def are_read(x: Tensor, y: Tensor) -> bool:
    """Whether words are made of factors as they lie in memory: of bfloat16, where the processor multiplies words."""
    return x.dtype == y.dtype and is_brain(x.dtype) and has_instruction()


def has_instruction() -> bool:
    """Whether the processor has the instruction."""
    return isa.DOTS


def pass_cycles(numbers: int) -> float:
    """Cycles to round so many numbers."""
    known = figures.known().figures
    return known.launch_cycles + PASS_BYTES * numbers / known.l3_bytes_per_cycle


# -- words -------------------------------------------------------------------------------------------------------


def _tag(x: Tensor) -> Any:
    return np.float32(0) if x.dtype.itemsize == ITEM else np.int16(0)


def in_rows(engine: HostEngine, x: Tensor, columns: int, address: int) -> None:
    """Writes words of neighbours in each of x's rows, which lie without gaps; an odd one's partner is 0."""
    numbers = x.numel()
    if columns % 2 == 0:  # rows do not matter then
        engine.launch(
            kernels.pair_numbers, _tag(x), x.dtype.itemsize, x.address, numbers, address, TASK_NUMBERS,
            tasks=-(-numbers // TASK_NUMBERS),
        )  # fmt: skip
        return
    rows, most = numbers // columns, max(1, TASK_NUMBERS // columns)
    engine.launch(
        kernels.pair_in_rows, _tag(x), x.dtype.itemsize, x.address, rows, columns, -(-columns // 2), address, most,
        tasks=-(-rows // most),
    )  # fmt: skip


def of_rows(engine: HostEngine, x: Tensor, blocks: int, rows: int, columns: int, address: int) -> None:
    """Writes words of neighbouring rows of each of x's blocks, which lie without gaps."""
    engine.launch(
        kernels.pair_rows, _tag(x), x.dtype.itemsize, x.address, blocks, rows, columns, address,
        tasks=-(-blocks * -(-rows // 2) // kernels.TASK_ROWS),
    )  # fmt: skip


def words(engine: HostEngine, shape: tuple[int, ...]) -> Tensor:
    """Memory for words."""
    return engine.empty(shape, WORD)


def rounded(engine: HostEngine, x: Tensor) -> Tensor:
    """A float32 tensor rounded to bfloat16, as float32, in x's order in memory."""
    order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
    x = engine.dense(x, order)
    out = engine.empty(x.shape, x.dtype, order)
    numbers = x.numel()
    engine.launch(
        kernels.round_numbers, np.float32(0), x.address, numbers, out.address, TASK_NUMBERS,
        tasks=-(-numbers // TASK_NUMBERS),
    )  # fmt: skip
    return out


# -- convolutions ------------------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """How a convolution is computed with words.

    Attributes:
        problem: the one of words, or one that rounds factors itself.
        cycles: with making words.
    """

    algorithm: Algorithm
    problem: Problem
    cycles: float


def choose(problem: Problem, packs: bool | None = None) -> Choice | None:
    """How a convolution of float32 images is computed with words; None where a float32 algorithm is faster.

    The algorithm that ``planner.use`` names is taken with words where it can be, else without; where it can compute
    neither, the choice is as without it, for filter gradients among algorithms that multiply by no zero.
    """
    wanted, packs = planner.wanted_name(), planner.packing(packs)
    if wanted is None:
        return _cheaper(problem, packs, planner.generation())
    algorithm = planner.named(wanted, problem.operator)
    found = next((one for one in _choices(problem, packs) if one.algorithm is algorithm), None)
    if found is not None or (algorithm is not None and algorithm.serves(problem)):
        return found
    return _cheaper(problem, packs, planner.generation(), problem.operator == WEIGHT_GRAD)


@lru_cache(maxsize=4096)
def _cheaper(problem: Problem, packs: bool, generation: int, exact: bool = False) -> Choice | None:
    choices = [one for one in _choices(problem, packs) if one.algorithm.suits(one.problem)]
    choices = [one for one in choices if one.algorithm.exact or not exact]
    best = min(choices, key=lambda choice: choice.cycles, default=None)
    packed = packs and problem.operator != WEIGHT_GRAD
    plain = planner.cheapest(problem, packed, exact)
    if best is None or plain.always or best.cycles >= plain.cycles(problem, packed, figures.known().figures):
        return None
    return best


def _choices(problem: Problem, packs: bool) -> list[Choice]:
    """All ways to compute a problem with words."""
    rounding, paired, known = replace(problem, rounds=True), of_words(problem), figures.known().figures
    serving = [one for one in planner.candidates(rounding) if one.rounds]
    found = [Choice(one, rounding, one.cycles(rounding, packs, known)) for one in serving]
    if paired is not None:
        serving = [one for one in planner.candidates(paired) if one.of_pairs]
        found += [Choice(one, paired, _cycles(one, problem, paired, packs)) for one in serving]
    return found


def _cycles(algorithm: Algorithm, problem: Problem, paired: Problem, packs: bool) -> float:
    """Cycles of an algorithm, and of the passes before it."""
    g, s = problem.geometry, problem
    x, y = s.images * math.prod(g.input) * s.in_channels, s.images * math.prod(g.output) * s.out_channels
    filter_numbers = math.prod(g.filter) * s.in_channels * s.group_out
    read = {FORWARD: x, INPUT_GRAD: y, WEIGHT_GRAD: x + y}[s.operator]
    again = 0.0 if s.operator == WEIGHT_GRAD or not packs else pass_cycles(filter_numbers)
    return algorithm.cycles(paired, packs, figures.known().figures) + pass_cycles(read) + again


def of_words(problem: Problem) -> Problem | None:
    """The problem of words; None where a word would hold channels of two groups."""
    g, groups = problem.geometry, problem.groups
    if problem.operator == WEIGHT_GRAD:
        images = -(-problem.images // 2)
        x = _strides(problem, images, problem.in_channels, g.input, problem.x_strides)
        y = _strides(problem, images, problem.out_channels, g.output, problem.y_strides)
        return replace(problem, images=images, x_strides=x, y_strides=y, are_pairs=True)
    summed = problem.group_in if problem.operator == FORWARD else problem.group_out
    if groups > 1 and summed % 2:
        return None
    channels = groups * -(-summed // 2)
    if problem.operator == FORWARD:
        x = _strides(problem, problem.images, channels, g.input, problem.x_strides)
        return replace(problem, in_channels=channels, x_strides=x, are_pairs=True)
    y = _strides(problem, problem.images, channels, g.output, problem.y_strides)
    return replace(problem, out_channels=channels, y_strides=y, are_pairs=True)


def _is_flat(problem: Problem) -> bool:
    """Whether both sides' memory is pixels without gaps, in whatever order, as images of one pixel."""
    return (
        problem.geometry is POINT
        and problem.x_strides[0] == problem.in_channels
        and problem.y_strides[0] == problem.out_channels
    )


def _strides(
    problem: Problem, images: int, channels: int, size: tuple[int, int], given: tuple[int, int, int]
) -> tuple[int, int, int]:
    """Those of images of words: of pixels without gaps in their order, else in the engine's."""
    return (channels,) * 3 if _is_flat(problem) else dense_strides(size, images, channels)


def by_words(engine: HostEngine, choice: Choice, problem: Problem, call: Call) -> int:
    """Computes a problem of float32 images with words; the multiply-adds, two for a word."""
    if choice.problem.rounds:
        return choice.algorithm.run(engine, choice.problem, call)
    if problem.operator == WEIGHT_GRAD:
        source, other = (_image_words(engine, problem, x) for x in (call.source, call.other))
    else:
        source = _channel_words(engine, problem, call.source)
        other = _filter_words(engine, problem, call.other)
    return 2 * choice.algorithm.run(engine, choice.problem, call._replace(source=source, other=other))


def _lying(engine: HostEngine, problem: Problem, x: Tensor) -> Tensor:
    return x if _is_flat(problem) else engine.dense(x, IMAGE_ORDER)


def _channel_words(engine: HostEngine, problem: Problem, x: Tensor) -> Tensor:
    """Images with words of neighbouring channels."""
    x, channels = _lying(engine, problem, x), x.shape[3]
    shape = (x.numel() // channels, 1, 1, -(-channels // 2))
    if is_brain(x.dtype) and channels % 2 == 0 and x.offset % 2 == 0:  # they are words as they lie
        return Tensor(x.storage, x.offset // 2, shape, (shape[3], shape[3], shape[3], 1), WORD)
    out = words(engine, shape)
    in_rows(engine, x, channels, out.address)
    return out


def _image_words(engine: HostEngine, problem: Problem, x: Tensor) -> Tensor:
    """Images with words of neighbouring images, or of neighbouring pixels where images are single ones."""
    x, channels = _lying(engine, problem, x), x.shape[3]
    pixels = 1 if _is_flat(problem) else math.prod(x.shape[1:3])
    out = words(engine, (-(-problem.images // 2), pixels, 1, channels))
    of_rows(engine, x, pixels, problem.images, channels, out.address)
    return out


def _filter_words(engine: HostEngine, problem: Problem, w: Tensor) -> Tensor:
    """Filters with words of neighbouring input channels, or output channels for an input gradient."""
    by_output, groups = problem.operator == FORWARD, problem.groups
    count, rows, columns, depth = w.shape
    if by_output:
        shape = (count, rows, columns, -(-depth // 2))
    else:
        shape = (groups * -(-count // groups // 2), rows, columns, depth)

    def make(target: Tensor) -> None:
        dense = engine.dense(w, range(4))
        if by_output:
            in_rows(engine, dense, depth, target.address)
        else:
            of_rows(engine, dense, groups, count // groups, rows * columns * depth, target.address)

    return filters.kept(engine, w, shape, f"words of {problem.operator}", make, dtype=WORD)


def factors(engine: HostEngine, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both factors of a product of float32 numbers, rounded where the instruction that rounds is emulated."""
    if not are_wanted(x.dtype.itemsize) or has_instruction() or x.dtype != y.dtype:
        return x, y
    return rounded(engine, x), rounded(engine, y)


def run(engine: HostEngine, problem: Problem, call: Call) -> int:
    """Computes a convolution in the precision that is set, by the cheapest algorithm that this allows.

    Images of bfloat16 (``are_read``) are of a problem of float32; the result, and what is added, may be of either.
    """
    rounds = is_brain(call.source.dtype) or are_wanted(problem.item)
    choice = choose(problem) if rounds and has_instruction() else None
    algorithm = planner.choose(problem) if choice is None else choice.algorithm
    given = call if algorithm.reads_halves else _widened(engine, problem, call, choice is None)
    macs = by_words(engine, choice, problem, given) if choice is not None else algorithm.run(engine, problem, given)
    if given.out is not call.out:
        engine.copy(given.out, call.out)
    return macs


def _widened(engine: HostEngine, problem: Problem, call: Call, with_factors: bool) -> Call:
    """A call with tensors of bfloat16 as float32, in the same order in memory; factors for words stay."""
    if with_factors and is_brain(call.source.dtype):
        w = call.other
        if problem.operator == WEIGHT_GRAD:
            other = cast(engine, w, float32)
        else:
            other = filters.kept(engine, w, w.shape, "float32", partial(engine.copy, w), call.reused, float32)
        call = call._replace(source=cast(engine, call.source, float32), other=other)
    if not is_brain(call.out.dtype):
        return call
    if call.residual is None:
        return call._replace(out=engine.empty(call.out.shape, float32, IMAGE_ORDER))
    residual = cast(engine, call.residual, float32)
    out = residual if call.residual is call.out else engine.empty(call.out.shape, float32, IMAGE_ORDER)
    return call._replace(out=out, residual=residual)
