"""The loop of a sum: a point-wise program whose one result is not stored, but added up over all elements.

A job is that of ``alpha.cpu.loops.loop`` with two fields more at its end: the address of a record of parts, and the
number by which the sum is divided. The result is one number. The record of parts holds how many tasks are done, and
each one's sum; a job that one thread runs needs none.

Sums are taken in float64: each lane adds its elements one after the other, those of float64 with what rounding took
(Neumaier, 1974); the lanes' sums are merged by halves, and so are the tasks', in the order of the elements. Tasks are
at most ``MOST_TASKS``, by the sizes alone, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

from alpha.cpu.isa import ISA
from alpha.cpu.loops import loop
from alpha.cpu.loops.code import TASKS, Code, alone, shared
from alpha.cpu.loops.lanes import Value
from alpha.expressions.program import Program

MOST_TASKS = 128
"""Tasks of a sum at most, a power of 2: their sums stand on the stack of a thread that runs all of them."""


def ir_of(program: Program, layout: loop.Layout, fused: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared"."""
    return _Writer(program, layout, fused).module()


class _Writer(loop.Writer):
    """Writes a loop whose turns carry sums along: a float32 vector has two, one of float64 a sum and its error."""

    kind = "double"

    def __init__(self, program: Program, layout: loop.Layout, fused: bool) -> None:
        super().__init__(program, layout, fused)
        self.wide_count = ISA.lanes(8)
        self.wide = f"<{self.wide_count} x double>"
        self.sums = 2 * self._unroll()

    def _entries(self) -> list[str]:
        places = self.results + self.program.tensors + self.program.count_of_numbers
        functions = _part(), _task(1 + places), _merge(1 + places + 1, self.layout.computed.bits)
        return [*[one.function() for one in functions], shared(_finish(1 + places)), alone(_every)]

    def _carry(self, name: str, *origins: tuple[str, str]) -> None:
        for k in range(self.sums):
            edges = []
            for block, origin in origins:
                # What is left of a row is one vector a turn: the other sums stay.
                before = "part" if origin == "part_next" and k >= 2 else origin
                edges.append(f"[ {f'%{before}{k}' if before else 'zeroinitializer'}, %{block} ]")
            self.text.act(f"%{name}{k} = phi {self.wide} {', '.join(edges)}")

    def _put(self, slots: list[Value], i: Value, mask: Value | None, turn: int) -> None:
        lanes, text = self.lanes, self.text
        value = slots[self.program.results[0]]
        if mask is not None:
            value = lanes.select(mask, value, lanes.number(0.0))
        name = "whole" if mask is None else "part"
        one, other = 2 * turn, 2 * turn + 1
        if lanes.bits == 32:
            for half, k in enumerate((one, other)):
                places = ", ".join(f"i32 {half * self.wide_count + lane}" for lane in range(self.wide_count))
                order = f"<{self.wide_count} x i32> <{places}>"
                part = text.write(f"shufflevector {lanes.floats} {value}, {lanes.floats} undef, {order}")
                widened = text.write(f"fpext <{self.wide_count} x float> {part} to {self.wide}")
                text.act(f"%{name}_next{k} = fadd {self.wide} %{name}{k}, {widened}")
            return
        total = f"%{name}_next{one}"
        text.act(f"{total} = fadd {self.wide} %{name}{one}, {value}")
        back = lanes.sub(total, f"%{name}{one}")
        lost = lanes.add(lanes.sub(f"%{name}{one}", lanes.sub(total, back)), lanes.sub(value, back))
        text.act(f"%{name}_next{other} = fadd {self.wide} %{name}{other}, {lost}")

    def _return(self) -> None:
        names = [f"%part{k}" for k in range(self.sums)]
        if self.lanes.bits == 32:
            self.text.act(f"ret double {self._across(names)}")
            return
        total, lost = self._across(names[::2]), self._across(names[1::2])
        size = self.text.write(f"call double @llvm.fabs.f64(double {lost})")
        self.text.declarations.add("declare double @llvm.fabs.f64(double)")
        is_finite = self.text.write(f"fcmp olt double {size}, 0x7FF0000000000000")
        corrected = self.text.write(f"fadd double {total}, {lost}")
        self.text.act(f"ret double {self.text.write(f'select i1 {is_finite}, double {corrected}, double {total}')}")

    def _across(self, vectors: list[Value]) -> Value:
        """The sum of all lanes of some vectors, halves merged until one number is left."""
        write, count = self.text.write, self.wide_count
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [write(f"fadd {self.wide} {x}, {y}") for x, y in pairs]
        numbers = [write(f"extractelement {self.wide} {vectors[0]}, i32 {lane}") for lane in range(count)]
        while len(numbers) > 1:
            half = len(numbers) // 2
            pairs = zip(numbers[:half], numbers[half:], strict=True)
            numbers = [write(f"fadd double {x}, {y}") for x, y in pairs]
        return numbers[0]


def _part() -> Code:
    """``part(job, plan, task)``: the sum of a task's elements."""
    code = Code("part", "job", "plan", "task", result="double")
    code.give("double", code.call("double", "range", "%job", *loop.bounds(code)))
    return code


def _task(parts: int) -> Code:
    """``task(job, plan, task)``: keeps a task's sum; the address of the tasks that are done.

    ``parts``: the place of the record of parts in a job.
    """
    code = Code("task", "job", "plan", "task", result="i64")
    record = code.field("%job", parts)
    _keep(code, code.add(record, 8), "%task")
    code.give("i64", record)
    return code


def _keep(code: Code, sums: Value, task: Value) -> None:
    """Stores a task's sum among others."""
    code.store("double", code.call("double", "part", "%job", "%plan", task), code.add(sums, code.mul(task, 8)), 8)


def _finish(parts: int) -> Callable[[Code], None]:
    """What the thread does that ends the last task."""

    def finish(code: Code) -> None:
        sums = code.add(code.field("%job", parts), 8)
        code.call("void", "merge", "%job", sums, code.field("%plan", TASKS))

    return finish


def _every(code: Code) -> None:
    """What a thread does that has no others beside it."""
    sums, tasks = code.room("double", MOST_TASKS), code.field("%plan", TASKS)
    code.loop(0, tasks, lambda task, _: _keep(code, sums, task))
    code.call("void", "merge", "%job", sums, tasks)


def _merge(divisor: int, bits: int) -> Code:
    """``merge(job, sums, count)``: merges the tasks' sums and stores the result; ``divisor``: its place in a job."""
    code = Code("merge", "job", "sums", "count")

    def halve(_: Value, now: list[Value]) -> list[Value]:
        half = code.quotient(code.add(now[0], 1), 2)

        def pair(k: Value, _: list[Value]) -> None:
            at = code.add("%sums", code.mul(k, 8))
            other = code.load("double", code.add(at, code.mul(half, 8)), 8)
            code.store("double", code.do(f"fadd double {code.load('double', at, 8)}, {other}"), at, 8)

        code.loop(0, code.sub(now[0], half), pair)
        return [half]

    code.loop(0, MOST_TASKS.bit_length() - 1, halve, [("i64", "%count")])
    total = code.load("double", "%sums", 8)
    quotient = code.do(f"fdiv double {total}, {code.field('%job', divisor, 'double')}")
    scalar = "float" if bits == 32 else "double"
    result = code.do(f"fptrunc double {quotient} to float") if bits == 32 else quotient
    code.store(scalar, result, code.field("%job", 1), bits // 8)
    code.give()
    return code
