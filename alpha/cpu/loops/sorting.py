"""Keys by which float32 numbers are sorted with their places, and what sorted keys tell.

A key has 64 bits: above, the number's bits in an order of integers, NaN last and both zeros the same; below, its place
in its line. No two are equal, so any sort of them is a stable one of the numbers.
"""

from __future__ import annotations

from alpha.cpu.loops import axis
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.machine import pointer_to
from alpha.cpu.loops.runs import Run

_KEYS, _X = 1, 2
"""Places in a job of ``keys_ir``."""

_VALUES, _INDICES, _SORTED, _OF = 1, 2, 3, 4
"""Places in a job of ``places_ir``: the results, the sorted keys, and the numbers as they were."""


def keys_ir() -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` of lines: the keys."""

    def line(code: Code, offset: Value) -> None:
        run = Run(32, code)
        x = code.add(code.field("%job", _X), offset)
        keys = code.add(code.field("%job", _KEYS), code.mul(offset, 2))
        wide, lanes = f"<{run.count} x i64>", range(run.count)
        iota = f"<{', '.join(f'i64 {lane}' for lane in lanes)}>"
        highest = "<" + ", ".join([f"i64 {32}"] * run.count) + ">"

        def put(at: Value, left: Value | None) -> None:
            number = run.add(run.read(code.add(x, at), left), run.number(0.0))  # no zero below 0
            bits = run.as_ints(number)
            flipped = run.integers("and", run.integers("ashr", bits, run.integer(31)), run.integer(2**31 - 1))
            ordered = run.integers("xor", bits, flipped)
            nan = run.compare("uno", number, number)
            ordered = code.write(f"select {run.masks} {nan}, {run.ints} {run.integer(2**31 - 1)}, {run.ints} {ordered}")
            above = code.write(f"shl {wide} {code.write(f'zext {run.ints} {ordered} to {wide}')}, {highest}")
            first = code.write(f"insertelement {wide} undef, i64 {code.quotient(at, 4)}, i32 0")
            order = f"<{run.count} x i32> zeroinitializer"
            start = code.write(f"shufflevector {wide} {first}, {wide} undef, {order}")
            key = code.write(f"or {wide} {above}, {code.write(f'add {wide} {start}, {iota}')}")
            _store(run, wide, key, code.add(keys, code.mul(at, 2)), left)

        run.map("%rows", 1, put)

    return module([axis.lines_task(4, line)], shared(), alone())


def _store(run: Run, kind: str, value: Value, address: Value, left: Value | None) -> None:
    """Stores integers of 64 bits, all or the first."""
    code = run.code
    if left is None:
        code.store(kind, value, address, 8)
        return
    pointer, suffix = pointer_to(kind), f"v{run.count}i64"
    name = f"llvm.masked.store.{suffix}.p0{'' if pointer == 'ptr' else suffix}"
    code.declarations.add(f"declare void @{name}({kind}, {pointer}, i32, {run.masks})")
    at = code.pointer(kind, address)
    code.act(f"call void @{name}({kind} {value}, {pointer} {at}, i32 8, {run.masks} {run.below(left)})")


def places_ir() -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` of lines: sorted values and their places."""

    def line(code: Code, offset: Value) -> None:
        twice = code.mul(offset, 2)
        x, values = (code.add(code.field("%job", place), offset) for place in (_OF, _VALUES))
        keys, indices = (code.add(code.field("%job", place), twice) for place in (_SORTED, _INDICES))

        def one(number: Value, _: list[Value]) -> None:
            skipped = code.mul(number, 8)
            place = code.write(f"and i64 {code.load('i64', code.add(keys, skipped), 8)}, 4294967295")
            code.store("i64", place, code.add(indices, skipped), 8)
            value = code.load("i32", code.add(x, code.mul(place, 4)), 4)
            code.store("i32", value, code.add(values, code.mul(number, 4)), 4)

        code.loop(0, "%rows", one)

    return module([axis.lines_task(4, line)], shared(), alone())
