"""Group, instance and batch norm, and their gradients, a sample in the caches at a time.

Numbers lie as rows of channels, a row for each position of a sample. A task is a sample, so no sum depends on the
threads; sums are those of ``alpha.cpu.loops.runs``. Deviations are taken from the mean of some rows, in two numbers of
x's dtype; what they sum to says by how much that is off (Chan, Golub and LeVeque, 1983).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from alpha.cpu.loops import axis, pixels
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value, scalar
from alpha.cpu.loops.row_norms import parts_of
from alpha.cpu.loops.runs import DEEP, Run


class GroupPlan(NamedTuple):
    """How rows of channels form samples and groups; steps in bytes."""

    tasks: int
    """Samples; several neighbours may count as one, of so many times the groups."""
    positions: int
    groups: int
    size: int
    """Channels of a group."""
    channels: int
    """Channels of a sample."""
    weights: int
    """Numbers of weight and bias, which serve the channels again and again."""
    sample_step: int
    position_step: int


class Variant(NamedTuple):
    """What a kernel is made for."""

    bits: int
    weight: bool
    bias: bool
    batch: bool
    """Whether it is batch norm's: one sample, groups of one channel, its own statistics, an activation."""
    streams: bool = False
    """Whether what is written, in aligned rows, goes past the caches."""


_PLACE = places(GroupPlan._fields)

_Y, _STATISTICS, _INVERSE, _X, _WEIGHT, _BIAS, _MEAN, _VAR, _EPS, _MOMENTUM, _SLOPE = range(1, 12)
"""Places in a job of ``ir_of``. Batch norm's statistics are mean and 1 / sqrt(var + eps) in x's dtype, at two places;
the running mean and variance, which are 0 where there are none, are blended. Others' are (samples, groups, 3) in
float64: mean, variance and 1 / sqrt."""

_DX, _SHARES, _DBIAS, _DY, _OF, _FACTOR, _KEPT, _KEPT_INVERSE, _SHIFT, _GRAD_SLOPE = range(1, 11)
"""Places in a job of ``grad_ir``. The shares (2, samples, channels) in float64 are those of each sample in the
gradients of weight and bias; batch norm's are the gradients themselves, in x's dtype, at two places."""

STATISTICS = 3
"""Numbers of a group."""

AHEAD_ROWS = 16
"""Rows by which they are prefetched: those of a sample may lie so far apart that the processor does not find them."""

FAR = 4.0
"""Deviations that a mean is at most from what the squares of deviations were taken from."""


def ir_of(variant: Variant) -> str:
    """A module with "alone" and "shared": act((x - mean) / sqrt(var + eps) * weight + bias)."""
    bits = variant.bits
    functions = [sums(bits), apart(bits), _apply(variant), _Forward(variant).code]
    return module(functions, shared(), alone(), pixels.STREAMS)


def grad_ir(variant: Variant) -> str:
    """A module with "alone" and "shared": the gradients."""
    functions = [_products(variant), _apply_grad(variant), _Backward(variant).code]
    return module(functions, shared(), alone(), pixels.STREAMS)


# -- passes over a sample ------------------------------------------------------------------------------------------


def sums(bits: int, name: str = "sums", together: Sequence[int] = (DEEP, 4, 1)) -> Code:
    """``sums(x, rows, step, columns, room)``: the columns' sums, so many rows added as a tree."""
    code = Code(name, "x", "rows", "step", "columns", "room")
    run = Run(bits, code)
    run.map("%columns", 1, lambda at, _: run.clear("%room", at))

    def take(rows: list[Value], at: Value, left: Value | None) -> None:
        run.add_to("%room", at, run.tree([run.read(code.add("%x", row), left) for row in rows]))

    axis.each_row(run, together, take)
    code.give()
    return code


def _deviation(run: Run, x: Value, at: Value) -> Value:
    """x - high - low of a vector of columns."""
    high, low = (run.read(run.code.add(name, at)) for name in ("%high", "%low"))
    return run.sub(run.sub(x, high), low)


def _prefetch(code: Code, rows: Sequence[Value], *tensors: str) -> None:
    """Prefetches those of rows of tensors that come ``AHEAD_ROWS`` later."""
    ahead = code.mul("%step", AHEAD_ROWS)
    for row in rows:
        for tensor in tensors:
            code.prefetch(code.add(code.add(tensor, row), ahead))


def apart(bits: int) -> Code:
    """``apart(x, rows, step, columns, high, low, room, squares)``: sums of the deviations and of their squares."""
    code = Code("apart", "x", "rows", "step", "columns", "high", "low", "room", "squares")
    run = Run(bits, code)
    for room in ("%room", "%squares"):
        run.map("%columns", 1, lambda at, _, room=room: run.clear(room, at))  # type: ignore[misc]

    def take(rows: list[Value], at: Value, left: Value | None) -> None:
        _prefetch(code, rows, "%x")
        found = [_deviation(run, run.read(code.add("%x", row), left), at) for row in rows]
        run.add_to("%room", at, run.tree(found))
        run.add_to("%squares", at, run.tree([run.mul(one, one) for one in found]))

    axis.each_row(run, (8, 1), take)
    code.give()
    return code


def _activated(run: Run, value: Value, slope: Value) -> Value:
    """value where it is above 0 or NaN, else value * slope."""
    return run.select(run.compare("ole", value, run.number(0.0)), run.mul(value, slope), value)


def _apply(variant: Variant) -> Code:
    """``apply(x, y, rows, step, columns, high, low, scale, shift, slope)``: y."""
    kind = "float" if variant.bits == 32 else "double"
    names = ("x", "y", "rows", "step", "columns", "high", "low", "scale", "shift", "slope")
    code = Code("apply", *names, slope=kind)
    run = Run(variant.bits, code)
    slope = run.spread("%slope")

    def put(rows: list[Value], at: Value, left: Value | None) -> None:
        scale, shift = (run.read(code.add(name, at)) for name in ("%scale", "%shift"))
        _prefetch(code, rows, "%x")
        for row in rows:
            value = _deviation(run, run.read(code.add("%x", row), left), at)
            value = run.fma(value, scale, shift) if variant.bias else run.mul(value, scale)
            value = _activated(run, value, slope) if variant.batch else value
            pixels.put(run, [value], "%y", [row], left, variant.streams)

    axis.each_row(run, (8, 1), put)
    code.give()
    return code


def _masked(run: Run, variant: Variant, grad: Value, deviation: Value, at: Value, slope: Value) -> Value:
    """The gradient before the activation: its sign is computed again."""
    if not variant.batch:
        return grad
    scale, shift = (run.read(run.code.add(name, at)) for name in ("%scale", "%shift"))
    value = run.fma(deviation, scale, shift) if variant.bias else run.mul(deviation, scale)
    below, unknown = run.compare("ole", value, run.number(0.0)), run.compare("uno", value, value)
    # ReLU's gradient at NaN is that of a positive number, LeakyReLU's that of a negative one, as in PyTorch.
    leaks = run.compare("une", slope, run.number(0.0))
    unknown = run.code.write(f"and {run.masks} {unknown}, {leaks}")
    return run.select(run.code.write(f"or {run.masks} {below}, {unknown}"), run.mul(grad, slope), grad)


_GRADIENT = ("dy", "x", "rows", "step", "columns", "high", "low", "scale", "shift", "slope")

_Slopes = Callable[[Value, Value, Value | None], tuple[Value, Value]]


def _of_gradient(variant: Variant, name: str, *more: str) -> tuple[Code, Run, _Slopes]:
    """A function of ``_GRADIENT`` and more, its vectors, and what gives a row's g and deviations from the mean."""
    code = Code(name, *_GRADIENT, *more, slope="float" if variant.bits == 32 else "double")
    run = Run(variant.bits, code)
    slope = run.spread("%slope")

    def slopes(row: Value, at: Value, left: Value | None) -> tuple[Value, Value]:
        deviation = _deviation(run, run.read(code.add("%x", row), left), at)
        return _masked(run, variant, run.read(code.add("%dy", row), left), deviation, at, slope), deviation

    return code, run, slopes


def _products(variant: Variant) -> Code:
    """``products(..., room, products)``: the columns' sums of g and of g times the deviation from the mean."""
    code, run, slopes = _of_gradient(variant, "products", "room", "products")
    for room in ("%room", "%products"):
        run.map("%columns", 1, lambda at, _, room=room: run.clear(room, at))  # type: ignore[misc]

    def take(rows: list[Value], at: Value, left: Value | None) -> None:
        _prefetch(code, rows, "%x", "%dy")
        found = [slopes(row, at, left) for row in rows]
        run.add_to("%room", at, run.tree([grad for grad, _ in found]))
        run.add_to("%products", at, run.tree([run.mul(*pair) for pair in found]))

    axis.each_row(run, (8, 1), take)
    code.give()
    return code


def _apply_grad(variant: Variant) -> Code:
    """``apply(..., dx, a, b, d)``: dx = a * g + b * deviation + d."""
    code, run, slopes = _of_gradient(variant, "apply", "dx", "a", "b", "d")

    def put(rows: list[Value], at: Value, left: Value | None) -> None:
        a, b, d = (run.read(code.add(name, at)) for name in ("%a", "%b", "%d"))
        _prefetch(code, rows, "%x", "%dy")
        for row in rows:
            grad, deviation = slopes(row, at, left)
            value = run.fma(grad, a, run.fma(deviation, b, d))
            pixels.put(run, [value], "%dx", [row], left, variant.streams)

    axis.each_row(run, (8, 1), put)
    code.give()
    return code


# -- a sample ------------------------------------------------------------------------------------------------------


class _Sample:
    """What forward and backward of a sample share: its sizes, and room for numbers of each channel.

    Attributes:
        arrays: what a channel's numbers are normalised with: high, low, scale, shift.
    """

    arrays: list[Value]

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.code = code = Code("task", "job", "plan", "task")
        self.run = Run(variant.bits, code)
        self.sizes = {name: code.field("%plan", place) for name, place in _PLACE.items()}
        self.channels = self.sizes["channels"]
        self.padded = code.add(self.channels, self.run.count)
        self.count = self._float(code.mul(self.sizes["positions"], self.sizes["size"]))

    def _float(self, value: Value) -> Value:
        return self.code.write(f"sitofp i64 {value} to double")

    def numbers(self) -> Value:
        """Room for a number of each channel."""
        return self.code.room(self.run.scalar, self.padded)

    def sums(self) -> Value:
        """Room for the sums of each channel."""
        return self.code.room("double", self.code.mul(self.padded, 2))

    def doubles(self) -> Value:
        """Room for a float64 of each channel."""
        return self.code.room("double", self.padded)

    def sample(self, place: int) -> Value:
        """Where the task's sample begins."""
        return self.code.add(self.code.field("%job", place), self.code.mul("%task", self.sizes["sample_step"]))

    def rows(self) -> tuple[Value, Value, Value]:
        """Positions, the bytes between them, and channels."""
        return self.sizes["positions"], self.sizes["position_step"], self.channels

    def each_group(self, body: Callable[[Value, Value, Value], None]) -> None:
        """``body(group, first, end)``: a group and its channels."""
        size = self.sizes["size"]

        def turn(group: Value, _: list[Value]) -> None:
            first = self.code.mul(group, size)
            body(group, first, self.code.add(first, size))

        self.code.loop(0, self.sizes["groups"], turn)

    def total(self, first: Value, end: Value, sums: int, terms: Callable[[Value], list[Value]]) -> list[Value]:
        """So many sums over channels, of what ``terms`` gives for each."""

        def more(channel: Value, now: list[Value]) -> list[Value]:
            return [self.do("fadd", one, term) for one, term in zip(now, terms(channel), strict=True)]

        _, *found = self.code.loop(first, end, more, [("double", "0.0")] * sums)
        return found

    def do(self, operation: str, x: Value, y: Value) -> Value:
        """An operation of float64."""
        return self.code.do(f"{operation} double {x}, {y}")

    def get(self, array: Value, channel: Value) -> Value:
        """A float64 of an array."""
        return self.code.load("double", self.code.add(array, self.code.mul(channel, 8)), 8)

    def get_number(self, array: Value, channel: Value) -> Value:
        """A number of an array as float64."""
        at = self.code.add(array, self.code.mul(channel, self.run.item))
        return self.run.double(self.code.load(self.run.scalar, at, self.run.item))

    def put_number(self, value: Value, array: Value, channel: Value) -> None:
        """A float64 as a number of an array."""
        at = self.code.add(array, self.code.mul(channel, self.run.item))
        self.code.store(self.run.scalar, self.run.narrowed(value), at, self.run.item)

    def factor(self, place: int, channel: Value) -> Value:
        """The weight or bias of a channel as float64."""
        return self.get_number(self.code.field("%job", place), self.code.rest(channel, self.sizes["weights"]))

    def put_parts(self, mean: Value, high: Value, low: Value, channel: Value) -> None:
        """Stores a mean in two numbers."""
        for part, array in zip(parts_of(self.run, mean), (high, low), strict=True):
            at = self.code.add(array, self.code.mul(channel, self.run.item))
            self.code.store(self.run.scalar, part, at, self.run.item)

    def scaled(self, inverse: Value, place: int, channel: Value) -> Value:
        """1 / sqrt times the weight of a channel, which has a place in the job."""
        return self.do("fmul", inverse, self.factor(place, channel)) if self.variant.weight else inverse

    def put_channel(self, channel: Value, mean: Value, inverse: Value, weight: int, bias: int) -> None:
        """Stores what a channel is normalised with; ``weight``, ``bias``: their places in the job."""
        high, low, scale, shift = self.arrays
        self.put_parts(mean, high, low, channel)
        self.put_number(self.scaled(inverse, weight, channel), scale, channel)
        if self.variant.bias:
            self.put_number(self.factor(bias, channel), shift, channel)

    def slope(self, place: int) -> Value:
        """The activation's slope in the numbers' dtype."""
        if not self.variant.batch:
            return "0x3FF0000000000000"
        return self.run.narrowed(self.code.field("%job", place, "double"))


class _Forward(_Sample):
    """Writes the forward of a sample."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant)
        code, run = self.code, self.run
        sums, squares = self.sums(), self.sums()
        total, square = self.doubles(), self.doubles()
        self.arrays = high, low, scale, shift = [self.numbers() for _ in range(4)]
        positions, step, channels = self.rows()
        x = self.sample(_X)
        some = code.smaller(positions, DEEP)
        code.call("void", "sums", x, some, step, channels, sums)
        run.plain_totals(sums, channels, total)
        count = self._float(code.mul(some, self.sizes["size"]))

        def first_mean(_: Value, first: Value, end: Value) -> None:
            (found,) = self.total(first, end, 1, lambda channel: [self.get(total, channel)])
            self._put_mean(self.do("fdiv", found, count), first, end)

        def gather() -> None:
            code.call("void", "apart", x, positions, step, channels, high, low, sums, squares)
            run.plain_totals(sums, channels, total)
            run.plain_totals(squares, channels, square)

        def again() -> None:
            self.each_group(lambda _, first, end: self._put_mean(self._moments(first, end)[0], first, end))
            gather()

        self.each_group(first_mean)
        self.totals = total, square
        gather()
        code.when(self._some_are_far(), again)
        self.each_group(self._group)
        slope = self.slope(_SLOPE)
        given = (x, self.sample(_Y), positions, step, channels, high, low, scale, shift, slope)
        code.call("void", "apply", *given, a9=run.scalar)
        code.give()

    def _put_mean(self, mean: Value, first: Value, end: Value) -> None:
        """What deviations of the channels of a group are taken from."""
        high, low = self.arrays[:2]
        self.code.loop(first, end, lambda channel, _: self.put_parts(mean, high, low, channel))

    def _moments(self, first: Value, end: Value) -> list[Value]:
        """Mean and variance of a group, and how far the mean is from what deviations were taken from."""
        code, run, (high, low) = self.code, self.run, self.arrays[:2]
        total, square = self.totals
        deviations, squares = self.total(first, end, 2, lambda c: [self.get(total, c), self.get(square, c)])
        rest = self.do("fdiv", deviations, self.count)
        taken_from = self.do("fadd", self.get_number(high, first), self.get_number(low, first))
        # A mean of the first rows that is not finite is the group's: what deviates from it says nothing more.
        counts = code.write(f"or i1 {run.finite('double', rest)}, {run.finite('double', taken_from)}")
        rest = code.write(f"select i1 {counts}, double {rest}, double 0.0")
        mean = self.do("fadd", taken_from, rest)
        squares = self.do("fsub", squares, self.do("fmul", self.do("fmul", rest, rest), self.count))
        negative = code.write(f"fcmp olt double {squares}, 0.0")
        squares = code.write(f"select i1 {negative}, double 0.0, double {squares}")
        return [mean, self.do("fdiv", squares, self.count), rest]

    def _some_are_far(self) -> Value:
        """Whether the mean of some group is so far from its first rows' that digits of the variance may be lost."""
        code, size = self.code, self.sizes["size"]

        def more(group: Value, now: list[Value]) -> list[Value]:
            first = code.mul(group, size)
            _, var, rest = self._moments(first, code.add(first, size))
            limit = self.do("fmul", var, scalar(FAR**2, 64))
            is_far = code.do(f"fcmp ogt double {self.do('fmul', rest, rest)}, {limit}")
            return [code.do(f"or i1 {now[0]}, {is_far}")]

        return code.loop(0, self.sizes["groups"], more, [("i1", "false")])[1]

    def _group(self, group: Value, first: Value, end: Value) -> None:
        """Statistics of a group, and what its channels are multiplied with and what is added to them."""
        code, run = self.code, self.run
        mean, var, _ = self._moments(first, end)
        root = run.wide_call("double", "sqrt", self.do("fadd", var, code.field("%job", _EPS, "double")))
        inverse = self.do("fdiv", "1.0", root)
        self._keep(group, mean, var, inverse)
        if self.variant.batch:  # what the gradient will find
            mean, inverse = (run.double(run.narrowed(value)) for value in (mean, inverse))
        code.loop(first, end, lambda c, _: self.put_channel(c, mean, inverse, _WEIGHT, _BIAS))

    def _keep(self, group: Value, mean: Value, var: Value, inverse: Value) -> None:
        """Stores a group's statistics; blends batch norm's into the running ones."""
        code = self.code
        if not self.variant.batch:
            place = code.add(code.mul("%task", self.sizes["groups"]), group)
            at = code.add(code.field("%job", _STATISTICS), code.mul(place, 8 * STATISTICS))
            for k, value in enumerate((mean, var, inverse)):
                code.store("double", value, code.add(at, 8 * k), 8)
            return
        self.put_number(mean, code.field("%job", _STATISTICS), group)
        self.put_number(inverse, code.field("%job", _INVERSE), group)
        fewer = self.do("fsub", self.count, "1.0")
        unbiased = self.do("fmul", var, self.do("fdiv", self.count, fewer))
        self._blend(_MEAN, mean, group)
        self._blend(_VAR, unbiased, group)

    def _blend(self, place: int, value: Value, channel: Value) -> None:
        code, running = self.code, self.code.field("%job", place)
        momentum = code.field("%job", _MOMENTUM, "double")
        kept = self.do("fsub", "1.0", momentum)

        def blend() -> None:
            old = self.do("fmul", kept, self.get_number(running, channel))
            self.put_number(self.do("fadd", old, self.do("fmul", momentum, value)), running, channel)

        code.when(code.less(0, running), blend)


class _Backward(_Sample):
    """Writes the gradients of a sample."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant)
        code, run = self.code, self.run
        sums, products = self.sums(), self.sums()
        self.sum, self.product = self.doubles(), self.doubles()
        self.arrays = [self.numbers() for _ in range(4)]
        self.factors = [self.numbers() for _ in range(3)]
        self.each_group(self._given)
        start = (self.sample(_DY), self.sample(_OF), *self.rows(), *self.arrays, self.slope(_GRAD_SLOPE))
        code.call("void", "products", *start, sums, products, a9=run.scalar)
        run.plain_totals(sums, self.channels, self.sum)
        run.plain_totals(products, self.channels, self.product)
        self.each_group(self._group)
        code.call("void", "apply", *start, self.sample(_DX), *self.factors, a9=run.scalar)
        code.give()

    def _statistics(self, group: Value) -> tuple[Value, Value]:
        """A group's mean and 1 / sqrt(var + eps)."""
        code, kept = self.code, self.code.field("%job", _KEPT)
        if self.variant.batch:
            return self.get_number(kept, group), self.get_number(code.field("%job", _KEPT_INVERSE), group)
        place = code.mul(code.add(code.mul("%task", self.sizes["groups"]), group), STATISTICS)
        return self.get(kept, place), self.get(kept, code.add(place, 2))

    def _given(self, group: Value, first: Value, end: Value) -> None:
        """What the forward has normalised the channels of a group with."""
        mean, inverse = self._statistics(group)

        def channel(c: Value, _: list[Value]) -> None:
            if self.variant.batch:
                self.put_channel(c, mean, inverse, _FACTOR, _SHIFT)
            else:
                self.put_parts(mean, self.arrays[0], self.arrays[1], c)

        self.code.loop(first, end, channel)

    def _group(self, group: Value, first: Value, end: Value) -> None:
        """The shares of a group's channels in the gradients of weight and bias, and the factors of dx."""
        code, (a, b, d) = self.code, self.factors
        _, inverse = self._statistics(group)

        def terms(c: Value) -> list[Value]:
            g, product = self.get(self.sum, c), self.get(self.product, c)
            if self.variant.weight:
                weight = self.factor(_FACTOR, c)
                g, product = self.do("fmul", g, weight), self.do("fmul", product, weight)
            return [g, product]

        of_g, of_gn = self.total(first, end, 2, terms)
        of_gn = self.do("fmul", of_gn, inverse)
        slope = self.do("fmul", self.do("fdiv", of_gn, self.count), self.do("fmul", inverse, inverse))
        slope = code.do(f"fneg double {slope}")
        shift = code.do(f"fneg double {self.do('fmul', self.do('fdiv', of_g, self.count), inverse)}")

        def channel(c: Value, _: list[Value]) -> None:
            factor = self.scaled(inverse, _FACTOR, c)
            for value, array in ((factor, a), (slope, b), (shift, d)):
                self.put_number(value, array, c)
            self._put_share(c, self.do("fmul", self.get(self.product, c), inverse), self.get(self.sum, c))

        code.loop(first, end, channel)

    def _put_share(self, channel: Value, of_weight: Value, of_bias: Value) -> None:
        code, shares = self.code, self.code.field("%job", _SHARES)
        if self.variant.batch:
            self.put_number(of_weight, shares, channel)
            self.put_number(of_bias, code.field("%job", _DBIAS), channel)
            return
        place = code.add(code.mul("%task", self.channels), channel)
        at = code.add(shares, code.mul(place, 8))
        code.store("double", of_weight, at, 8)
        half = code.mul(code.mul(self.sizes["tasks"], self.channels), 8)
        code.store("double", of_bias, code.add(at, half), 8)
