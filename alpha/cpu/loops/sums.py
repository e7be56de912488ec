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

from alpha.cpu.loops import loop
from alpha.cpu.loops.code import TASKS, Code, alone, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.runs import Run
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
        self.run = Run(layout.computed.bits, self.text)
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
            self.text.act(f"%{name}{k} = phi {self.run.wide} {', '.join(edges)}")

    def _put(self, slots: list[Value], i: Value, mask: Value | None, turn: int) -> None:
        lanes, text = self.lanes, self.text
        value = slots[self.program.results[0]]
        if mask is not None:
            value = lanes.select(mask, value, lanes.number(0.0))
        name = "whole" if mask is None else "part"
        places = range(2 * turn, 2 * turn + 2)
        for k, total in zip(places, self.run.taken([f"%{name}{k}" for k in places], value), strict=True):
            text.act(f"%{name}_next{k} = bitcast {self.run.wide} {total} to {self.run.wide}")  # gives it that name

    def _return(self) -> None:
        run, names = self.run, [f"%part{k}" for k in range(self.sums)]
        half = self.sums // 2
        pair = (names[:half], names[half:]) if run.bits == 32 else (names[::2], names[1::2])
        state = run.state([run.tree(one, lambda x, y: run.wide_do("fadd", x, y)) for one in pair])
        self.text.give("double", run.total("double", state))


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
