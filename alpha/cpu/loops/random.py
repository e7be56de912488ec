"""The loops that draw random numbers: Philox4x32-10 in vectors, by the definitions of ``alpha.random`` to the bit.

A job is a record of 8-byte fields: the address of a plan, of the result, the seed, the first counter, and two or three
numbers: for uniform ones ``alpha.random.uniform_bounds``, for normal ones standard deviation and mean. A plan is one of
tasks and elements. A lane of a vector is a counter, whose four words make four float32 numbers or two float64 ones,
side by side in memory. Nothing is contracted: products and sums are rounded each, as the definitions say.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpha import random
from alpha.cpu.isa import ISA
from alpha.cpu.loops import philox
from alpha.cpu.loops.code import TASKS, Code, alone, attributes, shared
from alpha.cpu.loops.lanes import Lanes, Text, Value, spread
from alpha.cpu.loops.machine import pointer_to
from alpha.expressions.arithmetic import bits_of

TASK = 1 << 12
"""Counters per task: whole vectors of them."""

OUT, SEED, OFFSET, NUMBERS = range(1, 5)
"""Places in a job."""

ELEMENTS = TASKS + 1
"""The place of the elements in a plan."""


def ir_of(distribution: str, bits: int) -> str:
    """A module of LLVM IR with the functions "alone" and "shared" for floats of so many bits."""
    return _Writer(distribution, bits).module()


class _Writer:
    """Writes one module; words are computed with in lanes of 64 bits, of which the lower 32 count."""

    def __init__(self, distribution: str, bits: int) -> None:
        self.distribution, self.bits = distribution, bits
        self.text = Text()
        self.lanes = Lanes(64, ISA.lanes(8), False, self.text)
        self.per_counter = 4 if bits == 32 else 2
        self.scalar = "float" if bits == 32 else "double"
        self.floats = f"<{self.lanes.count} x {self.scalar}>"

    def module(self) -> str:
        """The module's text."""
        body = self._range()
        entries = [_task(self.per_counter).function(), shared(), alone(), attributes()]
        return "\n".join([*sorted(self.text.declarations), body, *entries])

    def _range(self) -> str:
        """``range(job, plan, first, end)``: the numbers of some counters, whole vectors of them but for the last."""
        text, lanes, count = self.text, self.lanes, self.lanes.count
        group = count * self.per_counter
        kind = f"<{group} x {self.scalar}>"
        text.act(f"%room = alloca {kind}, align 64")
        out, seed, offset = (self._field(place) for place in (OUT, SEED, OFFSET))
        elements = self._field(ELEMENTS, "%plan")
        numbers = [self._number(NUMBERS + k) for k in range(3 if self.distribution == "uniform" else 2)]
        keys = philox.keys(lanes, seed)
        places = "<" + ", ".join(f"i64 {k}" for k in range(count)) + ">"
        text.act("br label %turn")
        text.label("turn")
        text.act("%i = phi i64 [ %first, %entry ], [ %next, %after ]")
        begun = spread(text, text.write(f"add i64 {offset}, %i"), "i64", count)
        counters = lanes.integers("add", begun, places)
        drawn = self._uniform if self.distribution == "uniform" else self._normal
        found = drawn(philox.words(lanes, counters, keys), numbers)
        value = philox.side_by_side(text, found, self.scalar, count)
        text.act(f"%begun = mul i64 %i, {self.per_counter}")
        text.act(f"%left = sub i64 {elements}, %begun")
        text.act(f"%skipped = mul i64 %begun, {self.bits // 8}")
        text.act(f"%at = add i64 {out}, %skipped")
        text.act(f"%is_whole = icmp sge i64 %left, {group}")
        text.act("br i1 %is_whole, label %whole, label %part")
        text.label("whole")
        text.act(f"%target = inttoptr i64 %at to {pointer_to(kind)}")
        text.act(f"store {kind} {value}, {pointer_to(kind)} %target, align {self.bits // 8}")
        text.act("br label %after")
        text.label("part")
        text.act(f"store {kind} {value}, {pointer_to(kind)} %room, align 64")
        text.act(f"%room_at = ptrtoint {pointer_to(kind)} %room to i64")
        self._copied()
        text.label("after")
        text.act(f"%next = add i64 %i, {count}")
        text.act("%goes_on = icmp slt i64 %next, %end")
        text.act("br i1 %goes_on, label %turn, label %return")
        text.label("return")
        text.act("ret void")
        body = "\n".join(f"  {line}" if not line.endswith(":") else line for line in text.lines)
        return (
            f"define internal void @range(i64 %job, i64 %plan, i64 %first, i64 %end) noinline #0 {{\nentry:\n{body}\n}}"
        )

    def _copied(self) -> None:
        """Copies as many numbers as are left, one after the other."""
        kind, pointer = self.scalar, pointer_to(self.scalar)
        for line in (
            "br label %one",
            "one:",
            "%k = phi i64 [ 0, %part ], [ %next_k, %one ]",
            f"%bytes = mul i64 %k, {self.bits // 8}",
            "%from = add i64 %room_at, %bytes",
            "%to = add i64 %at, %bytes",
            f"%from_pointer = inttoptr i64 %from to {pointer}",
            f"%to_pointer = inttoptr i64 %to to {pointer}",
            f"%number = load {kind}, {pointer} %from_pointer",
            f"store {kind} %number, {pointer} %to_pointer",
            "%next_k = add i64 %k, 1",
            "%more = icmp slt i64 %next_k, %left",
            "br i1 %more, label %one, label %after",
        ):
            self.text.act(line)

    # -- numbers -------------------------------------------------------------------------------------------------

    def _uniform(self, words: Sequence[Value], numbers: Sequence[Value]) -> list[Value]:
        """min(u * scale + low, last), computed in the result's dtype."""
        lanes, write = self.lanes, self.text.write
        if self.bits == 64:
            return [self._limited(lanes, u, numbers) for u in self._fractions(words)]
        narrow = Lanes(32, lanes.count, False, self.text)
        given = [write(f"fptrunc {lanes.floats} {number} to {narrow.floats}") for number in numbers]
        fractions = []
        for word in words:
            whole = self._as_float(lanes.integers("lshr", word, lanes.integer(8)))
            u = write(f"fptrunc {lanes.floats} {lanes.mul(whole, lanes.number(2.0**-24))} to {narrow.floats}")
            fractions.append(self._limited(narrow, u, given))
        return fractions

    def _limited(self, lanes: Lanes, u: Value, numbers: Sequence[Value]) -> Value:
        scale, low, last = numbers
        value = lanes.add(lanes.mul(u, scale), low)
        return lanes.select(lanes.compare("olt", last, value), last, value)

    def _fractions(self, words: Sequence[Value]) -> list[Value]:
        """Numbers in [0, 1) of 53 bits, two words each."""
        lanes = self.lanes
        result = []
        for first, second in (words[:2], words[2:]):
            high = self._as_float(lanes.integers("lshr", first, lanes.integer(5)))
            low = self._as_float(lanes.integers("lshr", second, lanes.integer(6)))
            whole = lanes.add(lanes.mul(high, lanes.number(2.0**26)), low)
            result.append(lanes.mul(whole, lanes.number(2.0**-53)))
        return result

    def _normal(self, words: Sequence[Value], numbers: Sequence[Value]) -> list[Value]:
        """Box and Muller's pairs times the standard deviation plus the mean, computed in float64."""
        lanes = self.lanes
        if self.bits == 64:
            open_ = [lanes.add(u, lanes.number(2.0**-54)) for u in self._fractions(words)]
        else:
            half, unit = lanes.number(0.5), lanes.number(2.0**-32)
            open_ = [lanes.mul(lanes.add(self._as_float(word), half), unit) for word in words]
        standard = [z for u, v in zip(open_[::2], open_[1::2], strict=True) for z in self._pair(u, v)]
        std, mean = numbers
        values = [lanes.add(lanes.mul(z, std), mean) for z in standard]
        if self.bits == 64:
            return values
        return [self.text.write(f"fptrunc {lanes.floats} {value} to {self.floats}") for value in values]

    def _pair(self, u: Value, v: Value) -> tuple[Value, Value]:
        """``alpha.random``'s pair of standard normal numbers."""
        lanes, one, two = self.lanes, self.lanes.number(1.0), self.lanes.number(2.0)
        shift = lanes.number(1.5 * 2.0**52)  # what is added to it is rounded to a whole number
        k = lanes.sub(lanes.add(lanes.mul(v, two), shift), shift)
        r = lanes.sub(v, lanes.mul(k, lanes.number(0.5)))
        turned = lanes.sub(k, one)
        sign = lanes.sub(lanes.mul(lanes.mul(turned, turned), two), one)
        radius = lanes.mul(lanes.call("sqrt", lanes.mul(self._log(u), lanes.number(-2.0))), sign)
        square = lanes.mul(r, r)
        sine = lanes.mul(self._polynomial(square, random.SIN), r)
        return lanes.mul(radius, self._polynomial(square, random.COS)), lanes.mul(radius, sine)

    def _log(self, u: Value) -> Value:
        """``alpha.random``'s logarithm."""
        lanes, one = self.lanes, self.lanes.number(1.0)
        bits, mantissa = lanes.as_ints(u), lanes.integer(52)
        above = lanes.integers("sub", bits, lanes.integer(bits_of(random.SQRT_HALF, 64)))
        exponent = lanes.integers("ashr", above, mantissa)
        m = lanes.as_floats(lanes.integers("sub", bits, lanes.integers("shl", exponent, mantissa)))
        s = lanes.div(lanes.sub(m, one), lanes.add(m, one))
        square = lanes.mul(s, s)
        value = lanes.mul(self._polynomial(square, random.LOG), square)
        value = lanes.mul(lanes.add(value, lanes.number(2.0)), s)
        return lanes.add(value, lanes.mul(lanes.from_small_ints(exponent), lanes.number(random.LN2)))

    def _polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule, each product and each sum rounded."""
        lanes = self.lanes
        value = lanes.mul(x, lanes.number(coefficients[-1]))
        for coefficient in coefficients[-2:0:-1]:
            value = lanes.mul(lanes.add(value, lanes.number(coefficient)), x)
        return lanes.add(value, lanes.number(coefficients[0]))

    def _as_float(self, words: Value) -> Value:
        """Integers below 2 ** 32 as float64, which is exact: they are the last bits of a float from 2 ** 52 on."""
        lanes = self.lanes
        placed = lanes.as_floats(lanes.integers("or", words, lanes.integer(bits_of(2.0**52, 64))))
        return lanes.sub(placed, lanes.number(2.0**52))

    # -- the job -----------------------------------------------------------------------------------------------

    def _field(self, place: int, record: Value = "%job") -> Value:
        write, kind = self.text.write, pointer_to("i64")
        address = write(f"add i64 {record}, {8 * place}")
        return write(f"load i64, {kind} {write(f'inttoptr i64 {address} to {kind}')}")

    def _number(self, place: int) -> Value:
        """A number of the job in every lane."""
        value = self.text.write(f"bitcast i64 {self._field(place)} to double")
        return spread(self.text, value, "double", self.lanes.count)


def _task(per_counter: int) -> Code:
    """``task(job, plan, task)``: the numbers of a task's counters."""
    code = Code("task", "job", "plan", "task")
    counters = code.quotient(code.add(code.field("%plan", ELEMENTS), per_counter - 1), per_counter)
    first = code.mul("%task", TASK)
    code.call("void", "range", "%job", "%plan", first, code.smaller(code.add(first, TASK), counters))
    code.give()
    return code
