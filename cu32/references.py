"""What each family of kernels is compared with on a device: one small problem, and NumPy's answer on the host.

Numbers are small integers where an operation allows it: float32 (and TF32, whose factors have 11 bits) then holds every
product and sum exactly, whatever their order, and any difference is a fault. Where rounding has a part, what is allowed
is some ten times what the operation rounds, relative to the largest element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from alpha import random
from alpha.cu32 import convolution, graphs, planner
from alpha.cu32.base import Array, Extents
from alpha.cu32.compiler import Source
from alpha.cu32.driver import Device
from alpha.cu32.engine import CUDAEngine
from alpha.cu32.parts import sum_parts
from alpha.cu32.pointwise import planned
from alpha.cu32.selfcheck import Verdict
from alpha.dtypes import TABLE, float32, float64, int8, int32, int64, is_float, is_stored
from alpha.engine import IMAGE_ORDER, BatchNormState, Epilogue, RangeCheck, RunningStatistics
from alpha.errors import IndexingError
from alpha.expressions.graph import Graph
from alpha.expressions.program import Program
from alpha.geometry import Geometry
from alpha.records import Normalised, ToNormalise
from alpha.tensor import Tensor
from alpha.update_rules import AdamRule, SGDRule

MEMORY = 64 << 20
"""Most bytes of the device that a check may take; a few segments of 2 MiB do, and are given back."""

ROUNDED = 1e-5
"""What is allowed of an operation that rounds: a hundred times float32's half unit, of functions and short sums."""

SUMMED = 3e-6
"""The same of sums of products, relative to the largest: a factor of which only the upper half were read would show."""

Result = tuple[Tensor | bool, Any, float]
"""What was computed, what is right, and the difference allowed, relative to the largest element; 0 is to the bit."""

FAMILIES: dict[str, Callable[[Checker], Sequence[Result]]] = {}
"""By kernel file, or kind of generated kernels, what runs them."""


class Checker(CUDAEngine):
    """An engine of its own, so that a program's pool, captures and counts know nothing of a check."""

    wanted = "highest"

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal, MEMORY)
        self.ran: set[str] = set()
        self.depth = 0

    @property
    def precision(self) -> str:
        return self.wanted

    def launch_packed(
        self, source: Source, kernel: str, blocks: Extents, threads: Extents, arguments: bytes, shared: int = 0
    ) -> None:
        super().launch_packed(source, kernel, blocks, threads, arguments, shared)
        self.ran.add(source.name)

    @contextmanager
    def high(self, algorithm: str = "tensor_cores") -> Iterator[None]:
        """Within it TF32 is what products and convolutions take, by an algorithm that may."""
        self.wanted = "high"
        try:
            with planner.use(algorithm):
                yield
        finally:
            self.wanted = "highest"

    def end(self) -> None:
        """Gives back the memory that the checks took."""
        self.forget_tables()
        self._flags = None
        self.memory.release_cached()


@cache
def _checker(device: Device) -> Checker:
    return Checker(device.ordinal)


def error(device: Device, family: str) -> Verdict | None:
    """How far the family is off on the device at worst; None where the device cannot run it."""
    checker = _checker(device)
    outer, macs = checker.depth, dict(convolution.MACS)  # which are of the program's calls
    try:
        checker.depth = outer + 1
        checker.ran.discard(family)
        found = [_difference(checker, *result) for result in FAMILIES[family](checker)]
        return max(found, key=_badness) if family in checker.ran else None
    finally:
        convolution.MACS.update(macs)
        checker.depth = outer
        if not outer:
            checker.end()


def _badness(verdict: Verdict) -> float:
    return verdict.error - verdict.allowed if verdict.error >= 0 else np.inf


def _difference(checker: Checker, got: Tensor | bool, expected: Any, tolerance: float) -> Verdict:
    ours = np.asarray(checker.to_numpy(got) if isinstance(got, Tensor) else got).astype(np.float64)
    right = np.asarray(expected).astype(np.float64)
    if ours.shape != right.shape:
        return Verdict(np.inf, 0.0)
    worst = np.abs(ours - right).max(initial=0)
    return Verdict(float(worst), tolerance * float(np.abs(right).max(initial=0)))


def _family(function: Callable[[Checker], Sequence[Result]]) -> Callable[[Checker], Sequence[Result]]:
    """Enters a function under its name, which is the kernel file's."""
    FAMILIES[function.__name__] = function
    return function


def _whole(*shape: int, seed: int = 0, low: int = -4, high: int = 5, dtype: Any = float32) -> Array:
    """Small integers."""
    return np.random.default_rng((seed, *shape)).integers(low, high, shape).astype(dtype)


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def _is_equal(results: Sequence[tuple[Tensor, Any]]) -> list[Result]:
    return [(got, expected, 0.0) for got, expected in results]


# -- element-wise ----------------------------------------------------------------------------------------------------


def _program(tensors: int, *operations: str) -> Program:
    """The results of operations of so many tensors."""
    graph = Graph()
    inputs = [graph.input(place) for place in range(tensors)]
    return Program(graph, [graph.apply(name, *inputs) for name in operations], inputs)


_FUNCTIONS = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin}
_FLAT = ((255,), (1,), float32, 0)
_DENSE, _ROW = ((7, 36), (36, 1), float32, 0), ((36,), (1,), float32, 0)
_ACROSS, _COLUMN = ((36, 7), (1, 36), float32, 0), ((36, 1), (1, 1), float32, 0)
_PROGRAMS = {
    "functions": (_program(1, *_FUNCTIONS), (_FLAT,)),
    "rows": (_program(2, "add", "maximum", "lt"), (_DENSE, _ROW)),
    "strided": (_program(2, "sub"), (_ACROSS, _COLUMN)),
}
"""Programs that are checked, and how their tensors lie."""

_SHORT = tuple([dtype for dtype in TABLE if is_float(dtype) and is_stored(dtype)])
_SUM = _program(2, "add")
_SUMMANDS = [(_FLAT, (*_FLAT[:2], dtype, 0)) for dtype in _SHORT]
"""How float32 numbers lie and those of 16 bits that are added to them."""

SOURCES = (
    *(planned(program, "check", None, *layouts).source for program, layouts in _PROGRAMS.values()),
    *(planned(_SUM, "check", None, *layouts).source for layouts in _SUMMANDS),
)


@_family
def pointwise(e: Checker) -> Sequence[Result]:
    x, whole, row = np.abs(_normal(255)) + np.float32(0.1), _whole(7, 36), _whole(36, seed=1)
    given = {"functions": (x,), "rows": (whole, row), "strided": (whole, row)}
    found: list[Tensor] = []
    for name, (program, layouts) in _PROGRAMS.items():
        tensors = [e.from_numpy(v).strided(0, *layout[:2]) for v, layout in zip(given[name], layouts, strict=True)]
        found += e.pointwise("check", program, tensors, ())
    rounded = [function(x.astype(np.float64)) for function in _FUNCTIONS.values()]
    exact = [whole + row, np.maximum(whole, row), whole < row, whole.T - row[:, None]]
    allowed = [ROUNDED] * len(rounded) + [0.0] * len(exact)
    converted, back = e.empty(whole.shape, int32), e.empty(whole.shape)
    e.copy(e.from_numpy(whole), converted)
    e.copy(converted, back)
    copies = _is_equal([(converted, whole), (back, whole)])
    return [*zip(found, [*rounded, *exact], allowed, strict=True), *copies]


@_family
def converted(e: Checker) -> Sequence[Result]:
    """Floats rounded to 16 bits, with ties and what is below the least normal number, and back; integers that wrap."""
    x = np.concatenate([_normal(248), [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 65519, 1e-7, 3e-41]])
    x = x.astype(np.float32)
    whole = _whole(90, low=-300, high=300, dtype=np.int64)
    wrapped = e.empty(whole.shape, int8)
    e.copy(e.from_numpy(whole), wrapped)
    found: list[tuple[Tensor, Array]] = [(wrapped, whole.astype(np.int8))]
    for dtype in _SHORT:
        short = x.astype(dtype)
        rounded, back = e.empty(x.shape, dtype), e.empty(x.shape)
        e.copy(e.from_numpy(x), rounded)
        e.copy(e.from_numpy(short), back)
        (twice,) = e.pointwise("check", _SUM, (back, rounded), ())
        found += [(rounded, short), (back, short.astype(np.float32)), (twice, 2 * short.astype(np.float32))]
    return _is_equal(found)


@_family
def progression(e: Checker) -> Sequence[Result]:
    whole = e.progression(5, -3, 300, int64), e.progression(5, -3, 300, float32)
    counted = [(found, 5 - 3 * np.arange(300)) for found in whole]
    return _is_equal([*counted, (e.progression(0.1, 0.3, 300, float64), np.arange(300) * ((0.1 + 0.3) - 0.1) + 0.1)])


@_family
def integers(e: Checker) -> Sequence[Result]:
    x, y = _whole(90, low=-50, high=50, dtype=np.int64), _whole(90, low=1, high=9, dtype=np.int64)
    a, b = e.from_numpy(x), e.from_numpy(y)
    operations = {
        "add": np.add, "mul": np.multiply, "floor_divide": np.floor_divide, "remainder": np.remainder, "pow": np.power,
        "lt": np.less,
    }  # fmt: skip
    return _is_equal([(e.elementwise(name, a, b), function(x, y)) for name, function in operations.items()])


@_family
def copy(e: Checker) -> Sequence[Result]:
    x = _whole(40, 36)
    a, turned, apart, filled = e.from_numpy(x), e.empty((36, 40)), e.empty((20, 36)), e.empty((9,))
    e.copy(a.strided(0, (36, 40), (1, 36)), turned)
    e.copy(a.strided(0, (20, 36), (72, 1)), apart)
    e.fill(filled, 7)
    return _is_equal([(turned, x.T), (apart, x[::2]), (filled, np.full(9, 7))])


@_family
def dropout(e: Checker) -> Sequence[Result]:
    x, kept = _whole(90), random.uniforms(5, 3, 90) >= 0.5
    y, mask = e.dropout(e.from_numpy(x), 0.5, 5, 3)
    return _is_equal([(y, np.where(kept, 2 * x, 0)), (mask, kept)])


@_family
def random_numbers(e: Checker) -> Sequence[Result]:
    draws = [random.Draw(name, (90,), float32, 0.0, 1.0, 5, 3) for name in ("uniform", "normal")]
    return _is_equal([(e.random(draw), draw.numpy()) for draw in draws])


FAMILIES["random"] = FAMILIES.pop("random_numbers")  # whose own name is the module's


# -- reductions, indices ---------------------------------------------------------------------------------------------


@_family
def reductions(e: Checker) -> Sequence[Result]:
    x = _whole(30, 700)
    a = e.from_numpy(x)
    return _is_equal(
        [
            (e.reduce("sum", a, (0, 1), False), x.sum(dtype=np.float64)),
            (e.reduce("sum", a, (0,), False), x.sum(0)),
            (e.reduce("max", a, (1,), False), x.max(1)),
            (e.arg_reduce("argmax", a, 1), x.argmax(1)),
        ]
    )


@_family
def scan(e: Checker) -> Sequence[Result]:
    x = _whole(3, 1500)
    a = e.from_numpy(x)
    return _is_equal([(e.cumsum(a, 1), x.cumsum(1)), (e.cumsum(a, 0), x.cumsum(0))])


@_family
def sort(e: Checker) -> Sequence[Result]:
    x = _whole(2, 1500)
    values, places = e.sort(e.from_numpy(x), 1)
    return _is_equal([(values, np.sort(x, 1)), (places, np.argsort(x, 1, kind="stable"))])


def _rows(*places: int) -> Array:
    return np.array(places, np.int64)


@_family
def indexing(e: Checker) -> Sequence[Result]:
    x, at, values = _whole(9, 20), _rows(3, 0, 8, 3), _whole(1, 20, seed=1)
    a = e.from_numpy(x)
    found = e.gather(a, (e.from_numpy(at), slice(None)))
    e.scatter(a, (e.from_numpy(at[3:]), slice(None)), e.from_numpy(values), False)
    right = x.copy()
    right[3] = values
    return _is_equal([(found, x[at]), (a, right)])


@_family
def positions(e: Checker) -> Sequence[Result]:
    x, rows, columns = _whole(9, 20), _rows(3, 0, 8), _rows(19, 2, 7)
    mask = x > 0
    a = e.from_numpy(x)
    pairs = e.gather(a, (e.from_numpy(rows), e.from_numpy(columns)))
    return _is_equal([(pairs, x[rows, columns]), (e.gather(a, (e.from_numpy(mask),)), x[mask])])


@_family
def accumulate(e: Checker) -> Sequence[Result]:
    x, at, values = _whole(9, 20), _rows(3, 0, 8, 3, 3), _whole(5, 20, seed=1)
    a, right = e.from_numpy(x), x.copy()
    e.scatter(a, (e.from_numpy(at), slice(None)), e.from_numpy(values), True)
    np.add.at(right, at, values)
    return _is_equal([(a, right)])


@_family
def checks(e: Checker) -> Sequence[Result]:
    check = RangeCheck(IndexingError, "[index] expected a place in range, got {value} at position {position}")
    index = _rows(3, -2, 0, 8)
    safe = e.to_numpy(e.check_range(e.from_numpy(index), -9, 9, check))
    e.check_range(e.from_numpy(_rows(3, 9)), -9, 9, check)
    try:
        e.synchronize()
        told = False
    except IndexingError as error:
        told = "got 9 at position 1" in str(error)
    return [(bool(np.array_equal(safe, index % 9)), True, 0.0), (told, True, 0.0)]


# -- products --------------------------------------------------------------------------------------------------------


@_family
def gemm(e: Checker) -> Sequence[Result]:
    x, y = _whole(72, 48), _whole(48, 36, seed=1)
    with planner.use("tiles"):
        return _is_equal([(e.matmul(e.from_numpy(x), e.from_numpy(y)), x @ y)])


@_family
def gemm_tf32(e: Checker) -> Sequence[Result]:
    x, y = _whole(72, 48), _whole(48, 36, seed=1)
    with e.high():
        return _is_equal([(e.matmul(e.from_numpy(x), e.from_numpy(y)), x @ y)])


@_family
def gemm_threefold(e: Checker) -> Sequence[Result]:
    x, y = _normal(72, 288), _normal(288, 36, seed=1)
    with planner.use("threefold"):
        return [(e.matmul(e.from_numpy(x), e.from_numpy(y)), x.astype(np.float64) @ y, SUMMED)]


@_family
def gemv(e: Checker) -> Sequence[Result]:
    x, v, w = _whole(40, 36), _whole(36, seed=1), _whole(40, seed=2)
    a, b, c = e.from_numpy(x), e.from_numpy(v), e.from_numpy(w)
    return _is_equal(
        [
            (e.gemv(a, b), x @ v),
            (e.gemv(a, c, trans=True), w @ x),
            (e.matmul(c.strided(0, (40, 1), (1, 1)), b.strided(0, (1, 36), (36, 1))), np.outer(w, v)),
            (e.ger(c, b, 2.0, a), x + 2 * np.outer(w, v)),
        ]
    )


@_family
def parts(e: Checker) -> Sequence[Result]:
    x, out = _whole(12, 90), e.empty((90,))
    sum_parts(e, e.from_numpy(x).storage, 12, out)
    return _is_equal([(out, x.sum(0))])


# -- convolutions ----------------------------------------------------------------------------------------------------


JOINED = 7
"""Parts of a split sum that are added in groups."""


class _Layer:
    """A convolution, and its three operators by loops over the taps."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        groups: int = 1,
        stride: int = 1,
        images: int = 3,
        draw: Callable[..., Array] = _whole,
        allowed: float = 0.0,
    ) -> None:
        self.allowed = allowed
        self.geometry = Geometry.make((6, 5), (3, 3), (stride, stride), (1, 1))
        self.groups, self.stride = groups, stride
        self.x = draw(images, 6, 5, inputs)
        self.w = draw(outputs, 3, 3, inputs // groups, seed=1)
        self.dy = draw(images, *self.geometry.output, outputs, seed=2)

    def forward(self, e: Checker) -> Result:
        """ConvV2."""
        right = np.zeros(self.dy.shape)
        for r, c, window in self._windows(self._padded(self.x)):
            right += np.einsum("nhwgi,goi->nhwgo", self._split(window), self._filters(r, c)).reshape(right.shape)
        return (
            e.conv2d(e.from_numpy(self.x), e.from_numpy(self.w), None, self.geometry, self.groups),
            right,
            self.allowed,
        )

    def activated(self, e: Checker) -> Result:
        """ConvV2, a residual and a leaky ReLU."""
        residual, w = e.dense(e.from_numpy(self.dy), IMAGE_ORDER), e.from_numpy(self.w)
        got = e.conv2d(e.from_numpy(self.x), w, None, self.geometry, self.groups, residual, 0.5)
        right = self.forward(e)[1] + self.dy
        return got, np.where(right > 0, right, 0.5 * right), self.allowed

    def input_grad(self, e: Checker) -> Result:
        """KS-deconv-V2."""
        got = e.conv2d_input_grad(e.from_numpy(self.dy), e.from_numpy(self.w), self.geometry, self.groups)
        return got, self._input_grad(), self.allowed

    def both(self, e: Checker) -> list[Result]:
        """ConvV2 and KS-deconv-V2."""
        return [self.forward(e), self.input_grad(e)]

    def with_norms(self, e: Checker, algorithm: str) -> list[Result]:
        """The same with a BatchNorm behind the one and before the other, in one part and in several."""
        found: list[Result] = []
        for parts in (1, JOINED):
            with planner.use(algorithm, parts=parts):
                found += [self.activated(e), *self.measured(e), *self.past(e), *self.past_both(e), *self._normalised(e)]
        return found

    def measured(self, e: Checker) -> list[Result]:
        """The statistics of a result."""
        tensors = e.from_numpy(self.x), e.from_numpy(self.w), None
        _, state = e.conv2d_measured(*tensors, self.geometry, self.groups, RunningStatistics(), 0.0)
        rows = self.forward(e)[1].reshape(-1, self.dy.shape[3])
        return [(state.mean, rows.mean(0), ROUNDED), (state.inverse_std, 1 / rows.std(0), ROUNDED)]

    def _normalised(self, e: Checker) -> list[Result]:
        """The result for a BatchNorm of the images before it, by a kernel that can normalise what it reads."""
        w = e.from_numpy(self.w)
        y, _ = e.conv2d_normalised(self._before(e, True), w, self.geometry, self.groups, RunningStatistics(), 0.0)
        return [(y, self._of_normal("forward", e), self.allowed)]

    def _before(self, e: Checker, is_shifted: bool = False, step: int = 1) -> Normalised:
        """A BatchNorm of the images: a leaky ReLU, of what is twice the rest above one, if they are to be shifted.

        ``step``: -1 for the images from the last to the first one.
        """
        x = e.dense(e.from_numpy(np.ascontiguousarray(self.x[::step])), IMAGE_ORDER)
        channels = np.ones(self.x.shape[3:])
        state = BatchNormState(e.from_numpy(is_shifted * channels), e.from_numpy((1 + is_shifted) * channels), True)
        return Normalised(x, Epilogue(slope=0.5), state)

    def _of_normal(self, operator: str, e: Checker) -> Any:
        """What an operator gives for the images that ``_before`` makes."""
        x, normal = self.x, 2 * (self.x - 1)
        self.x = np.where(normal > 0, normal, 0.5 * normal).astype(np.float32)
        try:
            return getattr(self, operator)(e)[1]
        finally:
            self.x = x

    def past(self, e: Checker) -> list[Result]:
        """The gradient past a leaky ReLU of the images, and its sums."""
        dy, w = e.from_numpy(self.dy), e.from_numpy(self.w)
        g, found = e.conv2d_input_grad_past(dy, w, self.geometry, self.groups, (self._before(e), None))
        right = self._input_grad() * np.where(self.x > 0, 1, 0.5)
        sums = np.stack([(right * factor).sum((0, 1, 2)) for factor in (1, self.x)])
        return [(g, right, self.allowed), (False if found is None else found.sums, sums, self.allowed)]

    def past_both(self, e: Checker) -> list[Result]:
        """The same of the sum of two BatchNorms, of the images and of the images from the last to the first one."""
        dy, w = e.from_numpy(self.dy), e.from_numpy(self.w)
        before = self._before(e), self._before(e, True, -1)
        g, found = e.conv2d_input_grad_past(dy, w, self.geometry, self.groups, before)
        others = self.x[::-1] - 1
        right = self._input_grad() * np.where(self.x + 2 * others > 0, 1, 0.5)
        sums = np.stack([(right * factor).sum((0, 1, 2)) for factor in (1, self.x, others)])
        return [(g, right, self.allowed), (False if found is None else found.sums, sums, self.allowed)]

    def _input_grad(self) -> Array:
        padded = self._padded(np.zeros(self.x.shape))
        for r, c, window in self._windows(padded):
            one = np.einsum("nhwgo,goi->nhwgi", self._split(self.dy), self._filters(r, c))
            window[...] += one.reshape(window.shape)
        return padded[:, 1:-1, 1:-1]

    def weight_grad(self, e: Checker) -> Result:
        """Sk-dilated-V2."""
        right = np.zeros(self.w.shape)
        for r, c, window in self._windows(self._padded(self.x)):
            one = np.einsum("nhwgi,nhwgo->goi", self._split(window), self._split(self.dy))
            right[:, r, c] = one.reshape(self.w.shape[0], self.w.shape[3])
        got = e.conv2d_weight_grad(e.from_numpy(self.x), e.from_numpy(self.dy), self.geometry, self.groups)
        return got, right, self.allowed

    def weight_grads(self, e: Checker, algorithm: str) -> list[Result]:
        """The same in one part and in several, and of a BatchNorm of the images."""
        found: list[Result] = []
        for parts in (1, JOINED):
            with planner.use(algorithm, parts=parts):
                found.append(self.weight_grad(e))
                dy = e.from_numpy(self.dy)
                got = e.conv2d_weight_grad_normalised(self._before(e, True), dy, self.geometry, self.groups)
                found.append((got, self._of_normal("weight_grad", e), self.allowed))
        return found

    def _padded(self, x: Array) -> Array:
        return np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))

    def _windows(self, padded: Array) -> Iterator[tuple[int, int, Array]]:
        """What each tap of the filter meets."""
        height, width = (self.stride * (n - 1) + 1 for n in self.geometry.output)
        for r, c in np.ndindex(3, 3):
            yield r, c, padded[:, r : r + height : self.stride, c : c + width : self.stride]

    def _split(self, x: Array) -> Array:
        """Channels by group."""
        return x.astype(np.float64).reshape(*x.shape[:3], self.groups, -1)

    def _filters(self, r: int, c: int) -> Array:
        """(groups, outputs, inputs) of one tap."""
        return self.w[:, r, c].astype(np.float64).reshape(self.groups, -1, self.w.shape[3])


@_family
def conv(e: Checker) -> Sequence[Result]:
    layer = _Layer(8, 12, stride=2)
    with planner.use("tiles"):
        return [*layer.both(e), *layer.with_norms(e, "tiles")]


@_family
def conv_tf32(e: Checker) -> Sequence[Result]:
    layer, stem, last = _Layer(32, 32, stride=2), _Layer(3, 36, stride=2), _Layer(36, 3, stride=2)
    found = []
    with e.high():
        found += [*layer.both(e), *layer.with_norms(e, "tensor_cores")]
    for parts in (1, JOINED):
        with e.high(), planner.use("flat_tensor_cores", parts=parts):
            found += [stem.forward(e), stem.activated(e), *stem.measured(e)]
            found += [last.input_grad(e), *last.past(e), *last.past_both(e)]
    return found


@_family
def conv_patch_tf32(e: Checker) -> Sequence[Result]:
    layers = _Layer(32, 32, stride=2), _Layer(32, 32)
    with e.high("patches"):
        return [one for layer in layers for one in (*layer.both(e), *layer.with_norms(e, "patches"))]


@_family
def conv_threefold(e: Checker) -> Sequence[Result]:
    layer = _Layer(32, 32, stride=2, draw=_normal, allowed=SUMMED)
    with planner.use("threefold"):
        return [*layer.both(e), *layer.with_norms(e, "threefold")]


@_family
def conv_weight(e: Checker) -> Sequence[Result]:
    return _Layer(8, 12, stride=2).weight_grads(e, "tiles")


@_family
def conv_weight_tf32(e: Checker) -> Sequence[Result]:
    with e.high():
        return _Layer(32, 32, stride=2).weight_grads(e, "tensor_cores")


@_family
def conv_weight_threefold(e: Checker) -> Sequence[Result]:
    return _Layer(32, 32, images=9, draw=_normal, allowed=SUMMED).weight_grads(e, "threefold")


@_family
def conv_window_tf32(e: Checker) -> Sequence[Result]:
    with e.high():
        layers = [_Layer(32, 32, stride=stride, images=33) for stride in (1, 2)]
        return [one for layer in layers for one in layer.weight_grads(e, "window")]


@_family
def conv_window_threefold(e: Checker) -> Sequence[Result]:
    return _Layer(32, 32, images=33, draw=_normal, allowed=SUMMED).weight_grads(e, "threefold_window")


@_family
def depthwise(e: Checker) -> Sequence[Result]:
    layer = _Layer(8, 8, groups=8)
    with planner.use("depthwise"):
        return [layer.forward(e), layer.input_grad(e)]


@_family
def depthwise_weight(e: Checker) -> Sequence[Result]:
    with planner.use("depthwise"):
        return [_Layer(8, 8, groups=8).weight_grad(e)]


@_family
def few_results(e: Checker) -> Sequence[Result]:
    with planner.use("few_results"):
        return [_Layer(16, 3).forward(e), _Layer(3, 16).input_grad(e)]


@_family
def few_weight(e: Checker) -> Sequence[Result]:
    with planner.use("few_channels"):
        return [_Layer(3, 16).weight_grad(e)]


# -- layers, losses, optimizers --------------------------------------------------------------------------------------


@_family
def normalisation(e: Checker) -> Sequence[Result]:
    x, dy = _normal(3, 5, 6, 8), _normal(3, 5, 6, 8, seed=1)
    a, wide, axes = e.from_numpy(x), x.astype(np.float64), (0, 1, 2)
    epilogue = Epilogue(slope=0.0)
    y, state = e.batch_norm(a, RunningStatistics(), 1e-5, epilogue, None)
    inverse = 1 / np.sqrt(wide.var(axes) + 1e-5)
    normal = (wide - wide.mean(axes)) * inverse
    dx, _, dbias, _ = e.batch_norm_grad(e.from_numpy(dy), a, None, epilogue, state, False)
    passed = np.where(normal > 0, dy.astype(np.float64), 0)
    right = inverse * (passed - passed.mean(axes) - normal * (passed * normal).mean(axes))
    b = e.from_numpy(dy)
    again = e.batch_norm_again(a, epilogue, state, b)
    *_, through = e.batch_norm_remade_grad(b, a, b, epilogue, state, True)
    assert through is not None
    pair = [ToNormalise(t, None, None, RunningStatistics(), 1e-5) for t in (a, b)]
    two, one, other = e.batch_norm_sum(pair[0], pair[1], 0.0)
    terms = [Normalised(t, epilogue, found) for t, found in ((a, one), (b, other))]
    slope, *_ = e.batch_norm_sum_grad(b, terms[0], terms[1])
    chains = [e.batch_norm_chain_again((terms * 2)[:count], a) for count in (2, 3, 4)]
    total = normal + (dy - dy.mean(axes)) / np.sqrt(dy.astype(np.float64).var(axes) + 1e-5)
    left = np.where(total > 0, dy.astype(np.float64), 0)
    second, sums = total - normal, [wide]
    for step in (second, normal, second, normal):  # from the innermost term outwards
        sums.append(np.maximum(step + sums[-1], 0))
    odd = np.maximum(normal + wide, 0)
    odd = np.maximum(normal + np.maximum(second + odd, 0), 0)
    return [
        *[(found, right, ROUNDED) for found, right in zip(chains, (sums[2], odd, sums[4]), strict=True)],
        (two, np.maximum(total, 0), ROUNDED),
        (slope, inverse * (left - left.mean(axes) - normal * (left * normal).mean(axes)), ROUNDED),
        (again, np.maximum(normal + dy, 0), ROUNDED),
        (through, np.where(normal + dy > 0, dy, 0), ROUNDED),
        (e.channel_sum(a), wide.sum(axes), ROUNDED),
        (y, np.maximum(normal, 0), ROUNDED),
        (dx, right, ROUNDED),
        (dbias, passed.sum(axes), ROUNDED),
    ]


@_family
def pooling(e: Checker) -> Sequence[Result]:
    x, dy = _whole(3, 6, 4, 8), _whole(3, 3, 2, 8, seed=1)
    windows = x.reshape(3, 3, 2, 2, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(3, 3, 2, 4, 8)
    geometry = Geometry.make((6, 4), (2, 2), (2, 2))
    a, b = e.from_numpy(x), e.from_numpy(dy)
    most, taps = e.max_pool2d(a, geometry)
    chosen = np.arange(4)[:, None] == windows.argmax(3)[:, :, :, None]
    back = (chosen * dy[:, :, :, None]).reshape(3, 3, 2, 2, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(x.shape)
    found = [
        (most, windows.max(3)),
        (e.avg_pool2d(a, geometry, True), windows.mean(3)),
        (e.avg_pool2d_grad(b, geometry, True), dy.repeat(2, 1).repeat(2, 2) / 4),
    ]
    if taps is not None:
        found += [(taps, windows.argmax(3)), (e.max_pool2d_grad(b, taps, geometry), back)]
    return _is_equal(found)


@_family
def losses(e: Checker) -> Sequence[Result]:
    x, labels, scale = _normal(37, 10), np.arange(37) % 10, _normal(37)
    places = e.from_numpy(labels.astype(np.int64))
    exponents = np.exp(x.astype(np.float64))
    right = exponents / exponents.sum(1, keepdims=True)
    costs, probabilities = e.cross_entropy(e.from_numpy(x), places, 0.0)
    gradient = e.cross_entropy_grad(probabilities, places, e.from_numpy(scale), 0.0)
    single = -np.log(right[np.arange(37), labels])
    found = [
        (costs, single, ROUNDED),
        (probabilities, right, ROUNDED),
        (gradient, scale[:, None] * (right - np.eye(10)[labels]), ROUNDED),
    ]
    kept = labels != 3
    at_once = e.cross_entropy_loss(e.from_numpy(x), places, 3, "mean", 0.0, RangeCheck(IndexingError, ""))
    if at_once is not None:
        mean, probabilities, followed, factor = at_once
        slope = e.cross_entropy_loss_grad(e.from_numpy(scale[0]), probabilities, followed, factor, 0.0)
        share = scale[0] / kept.sum() * kept[:, None]
        found += [
            (mean, single[kept].mean(), ROUNDED),
            (slope, share * (right - np.eye(10)[labels]), ROUNDED),
        ]
    picked, followed, slope_of = e.nll_loss(e.from_numpy(x), places, 3, "mean", RangeCheck(IndexingError, ""))
    back = e.nll_loss_grad(e.from_numpy(scale[0]), followed, slope_of, 10)
    found += [
        (picked, -x[kept, labels[kept]].astype(np.float64).mean(), ROUNDED),
        (back, -scale[0] / kept.sum() * kept[:, None] * np.eye(10)[labels], ROUNDED),
    ]
    return found


@_family
def optimizers(e: Checker) -> Sequence[Result]:
    p, g = _normal(3000), _normal(3000, seed=1)
    wide, slope = p.astype(np.float64), g.astype(np.float64)
    plain, adapted, first, second = (e.from_numpy(x) for x in (p, p, np.zeros_like(p), np.zeros_like(p)))
    gradient = e.from_numpy(g)
    e.optimizer_step([(plain, gradient)], SGDRule(0.1, 0.0, 0.0, 0.01))
    e.optimizer_step([(adapted, gradient, first, second)], AdamRule(0.1, (0.9, 0.999), 1e-8, 0.0, 1))
    return [
        (plain, wide - 0.1 * (slope + 0.01 * wide), ROUNDED),
        (adapted, wide - 0.1 * np.sign(slope), 10 * ROUNDED),  # a first step's; eps counts where a gradient is small
        (first, 0.1 * slope, ROUNDED),
        (second, 0.001 * slope * slope, ROUNDED),
    ]


@_family
def images(e: Checker) -> Sequence[Result]:
    pixels = _whole(2, 7, 6, 3, low=0, high=256, dtype=np.uint8)
    places = np.array([[1, 0, 1], [0, 4, -1]], np.int32)  # the second is mirrored
    got = e.images_to_float(
        e.from_numpy(pixels), e.from_numpy(places), (5, 4), np.full(3, 2.0, np.float32), np.full(3, 4.0, np.float32)
    )
    right = np.stack([pixels[0, 1:6, 0:4], pixels[1, 0:5, 4:0:-1]])
    return _is_equal([(got, (right.astype(np.float64) - 2) / 4)])


@_family
def stored(e: Checker) -> Sequence[Result]:
    values = _whole(graphs.PIECE // 8, dtype=np.int64)
    out = e.empty(values.shape, int64)
    e.launch(graphs.SOURCES[0], "store", 1, graphs.PIECE // 4, values.tobytes(), out)
    return _is_equal([(out, values)])


FAMILIES["graphs"] = FAMILIES.pop("stored")
