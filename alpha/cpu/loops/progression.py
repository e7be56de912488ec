"""The loop that writes an arithmetic progression: first + i * step for each place i of a tensor.

It counts in int64, or in float64 by a product and a sum that are each rounded, and converts what it counts to the
tensor's dtype. A job is a record of 8-byte fields: plan, address, elements, first, step. A plan counts the tasks.
"""

from __future__ import annotations

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.elements import FLOAT, SIGNED, Element
from alpha.cpu.loops.lanes import Value, spread
from alpha.cpu.loops.machine import pointer_to

TASK = 1 << 15
"""Elements of a task."""

_OUT, _COUNT, _FIRST, _STEP = range(1, 5)
"""Places in a job."""

_VECTORS = 4
"""Vectors that a turn of the loop stores."""

_ITEMS = {"i32": 4, "i64": 8, "float": 4, "double": 8}
"""Bytes of what may be stored, by LLVM's names."""


def serves(stored: Element, in_floats: bool) -> bool:
    """Whether there is a loop that stores such elements and counts in floats, or in integers."""
    return stored.kind == FLOAT or (not in_floats and stored.kind == SIGNED and stored.bits >= 32)


def ir_of(in_floats: bool, stored: Element, streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared".

    Args:
        in_floats: whether it counts in float64 instead of int64; stored: what it ``serves``.
        streams: whether it writes past the caches; then the address is aligned to whole vectors.
    """
    numbers = _Numbers("double" if in_floats else "i64", stored.scalar, streams)
    return module([_task(numbers)], shared(), alone(), "!0 = !{ i32 1 }")


class _Numbers:
    """What is counted and stored, one number or a vector at a time."""

    def __init__(self, counted: str, stored: str, streams: bool) -> None:
        self.counted, self.stored, self.streams = counted, stored, streams
        self.item, self.lanes = _ITEMS[stored], ISA.lanes(8)

    def many(self, kind: str, count: int) -> str:
        """LLVM's name of so many numbers."""
        return kind if count == 1 else f"<{count} x {kind}>"

    def spread(self, code: Code, value: Value, count: int) -> Value:
        """A number in every lane."""
        return value if count == 1 else spread(code, value, self.counted, count)

    def start(self, code: Code, place: Value, count: int) -> Value:
        """What the counting begins with: numbers in int64, places in float64."""
        lanes = ", ".join(f"i64 {lane}" for lane in range(count))
        if count == 1:
            places = place
        else:
            every = spread(code, place, "i64", count)
            places = code.write(f"add {self.many('i64', count)} {every}, <{lanes}>")
        kind = self.many("i64", count)
        if self.counted == "double":
            return code.write(f"sitofp {kind} {places} to {self.many('double', count)}")
        first, step = (self.spread(code, code.field("%job", at), count) for at in (_FIRST, _STEP))
        return code.write(f"add {kind} {first}, {code.write(f'mul {kind} {places}, {step}')}")

    def further(self, code: Code, now: Value, by: int, count: int) -> Value:
        """The counting so many places on."""
        if not by:
            return now
        kind = self.many(self.counted, count)
        if self.counted == "double":
            number = f"double {float(by)}"
            step = f"{float(by)}" if count == 1 else f"<{', '.join([number] * count)}>"
            return code.write(f"fadd {kind} {now}, {step}")
        step = self.spread(code, code.mul(code.field("%job", _STEP), by), count)
        return code.write(f"add {kind} {now}, {step}")

    def put(self, code: Code, now: Value, address: Value, count: int) -> None:
        """Stores the numbers that the counting has come to."""
        kind, target = self.many(self.counted, count), self.many(self.stored, count)
        if self.counted == "double":
            first, step = (self.spread(code, code.field("%job", at, "double"), count) for at in (_FIRST, _STEP))
            now = code.write(f"fadd {kind} {code.write(f'fmul {kind} {now}, {step}')}, {first}")
        if self.stored != self.counted:
            narrow = "fptrunc" if self.counted == "double" else "trunc" if self.stored == "i32" else "sitofp"
            now = code.write(f"{narrow} {kind} {now} to {target}")
        align, hint = (self.item * count, ", !nontemporal !0") if self.streams and count > 1 else (self.item, "")
        code.act(f"store {target} {now}, {pointer_to(target)} {code.pointer(target, address)}, align {align}{hint}")


def _task(numbers: _Numbers) -> Code:
    """``task(job, plan, task)``: whole vectors, several per turn, then number by number."""
    code = Code("task", "job", "plan", "task")
    out, count = code.field("%job", _OUT), code.field("%job", _COUNT)
    first = code.mul("%task", TASK)
    end = code.smaller(code.add(first, TASK), count)
    at = first
    for lanes, vectors in ((numbers.lanes, _VECTORS), (1, 1)):

        def turn(i: Value, now: list[Value], lanes: int = lanes, vectors: int = vectors) -> list[Value]:
            address = code.add(out, code.mul(i, numbers.item))
            for k in range(vectors):
                there = code.add(address, k * lanes * numbers.item) if k else address
                numbers.put(code, numbers.further(code, now[0], k * lanes, lanes), there, lanes)
            return [numbers.further(code, now[0], vectors * lanes, lanes)]

        start = numbers.start(code, at, lanes)
        last = code.sub(end, vectors * lanes - 1)
        at, _ = code.loop(at, last, turn, [(numbers.many(numbers.counted, lanes), start)], vectors * lanes)
    code.give()
    return code
