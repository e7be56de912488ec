"""Dot products: the sum of the products of two lines of numbers, of which long ones are cut into parts.

A float32 sum that is not finite is taken again in float64, where a product of two float32 numbers is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from alpha.cpu.loops.code import Code, returned
from alpha.cpu.loops.cut_lines import CutLines
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.runs import LONG, Run, State

AHEAD_BYTES = 2048
"""How far ahead lines that come from memory are prefetched."""

FAR_BYTES = 1 << 23
"""Bytes of both lines from which on they do."""


class DotPlan(NamedTuple):
    """A pair of lines."""

    tasks: int
    lines: int
    """1."""
    bunch: int
    """Lines of a task: 1."""
    length: int
    parts: int
    """Parts of the lines, each a task."""
    is_far: int
    """1 where the lines come from memory, else 0."""


_OUT, _X, _Y, _PARTS = 1, 2, 3, 4
"""Places in a job; the last is of a counter, which begins with 0, before room for what the parts make."""


def ir_of(bits: int) -> str:
    """A module with the functions "alone" and "shared", of a ``DotPlan``."""
    return _Dots(bits).module(
        [_products(bits, False), _products(bits, True), *([_wide_products()] if bits == 32 else [])]
    )


def words(bits: int, plan: DotPlan) -> int:
    """8-byte words for the counter and the parts of several threads."""
    return 1 + plan.tasks * len(_kinds(bits))


def _kinds(bits: int) -> list[str]:
    return ["double"] * (1 if bits == 32 else 2)


def _products(bits: int, is_far: bool) -> Code:
    """``products(x, y, count)`` and ``far_products``: the sum of the products, a state of ``Run``."""
    code = Code("far_products" if is_far else "products", "x", "y", "count", result=returned(_kinds(bits)))
    run = Run(bits, code)

    def term(at: Value, left: Value | None) -> list[Value]:
        places = [code.add(line, at) for line in ("%x", "%y")]
        if is_far and left is None:
            for place in places:
                code.prefetch(code.add(place, AHEAD_BYTES))
        return [run.mul(*[run.read(place, left) for place in places])]

    (state,) = run.totals("%count", 1, term, LONG)
    if bits == 64:
        code.give_several(_kinds(bits), state)
        return code
    again = "call double @wide_products(i64 %x, i64 %y, i64 %count)"
    code.give(
        "double", *code.choose(run.finite("double", state[0]), lambda: state, lambda: [code.do(again)], ["double"])
    )
    return code


def _wide_products() -> Code:
    """``wide_products(x, y, count)``: the same in float64."""
    code = Code("wide_products", "x", "y", "count", result="double")
    run = Run(32, code)

    def take(offsets: list[Value], left: Value | None, now: list[Value]) -> list[Value]:
        x, y = (run.widened(run.read(code.add(line, offsets[0]), left)) for line in ("%x", "%y"))
        products = [run.wide_do("fmul", *pair) for pair in zip(x, y, strict=True)]
        return [run.wide_do("fadd", one, product) for one, product in zip(now, products, strict=True)]

    code.give("double", *run.state(run.fold("%count", (1,), take, [(run.wide, "zeroinitializer")] * 2)))
    return code


class _Dots(CutLines):
    """Writes the functions of a dot product."""

    def __init__(self, bits: int) -> None:
        super().__init__(DotPlan._fields, _PARTS, _kinds(bits))
        self._bits = bits

    def _between(self, code: Code, first: Value, end: Value) -> State:
        """The sum of the products from one place up to another."""
        at = code.mul(first, self._bits // 8)
        x, y = (code.add(code.field("%job", place), at) for place in (_X, _Y))
        count = code.sub(end, first)

        def products(name: str) -> Callable[[], State]:
            return lambda: code.several(self.kinds, name, x, y, count)

        is_far = code.less(0, self.field(code, "is_far"))
        return code.choose(is_far, products("far_products"), products("products"), self.kinds)

    def whole(self) -> Code:
        code = Code("whole", "job", "plan", "first", "end")
        self.put(code, "0", self._between(code, "0", self.field(code, "length")))
        code.give()
        return code

    def piece(self) -> Code:
        code = Code("piece", "job", "plan", "line", "piece", result=returned(self.kinds))
        length, parts = self.field(code, "length"), self.field(code, "parts")
        first, end = (code.quotient(code.mul(length, piece), parts) for piece in ("%piece", code.add("%piece", 1)))
        code.give_several(self.kinds, self._between(code, first, end))
        return code

    def merged(self, code: Code, piece: Value, now: State, other: State) -> State:
        return Run(self._bits, code).merged("double", now, other)

    def put(self, code: Code, line: Value, values: State) -> None:
        run = Run(self._bits, code)
        code.store(run.scalar, run.narrowed(run.total("double", values)), code.field("%job", _OUT), run.item)
