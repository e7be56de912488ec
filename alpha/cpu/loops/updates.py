"""The loop of an optimizer's step: a program that writes a list of parameters and their states in place.

A job is a record of 8-byte fields: the address of a plan, the numbers, and for each parameter of the list the addresses
of the parameter, its gradient and its states, which lie alike. A plan is one of integers, shared by all steps of
parameters of these sizes: the number of tasks, and for each the parameter's place in the list, its first element and
the one after its last. Every element is read and written once, all that it needs before the first of it is written.
"""

from __future__ import annotations

from alpha.cpu.loops import loop
from alpha.cpu.loops.code import TASKS, Code, alone, shared
from alpha.cpu.loops.elements import FLOAT, Element
from alpha.cpu.loops.lanes import Value
from alpha.expressions.program import Program

TASK_FIELDS = ("row", "first", "end")
"""What a plan says of a task."""


def ir_of(program: Program, bits: int, fused: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared", for floats of so many bits."""
    element = Element(FLOAT, bits)
    tensors = ((element, loop.DENSE),) * program.tensors
    return _Writer(program, loop.Layout(element, tensors, is_flat=True, streams=False), fused).module()


class _Writer(loop.Writer):
    """Writes a loop whose rows are the list's parameters."""

    def _bases(self) -> list[Value]:
        return []

    def _row_pointers(self, plan: Value, bases: list[Value]) -> list[Value]:
        width = self.program.tensors
        skipped = self.text.write(f"mul i64 %row_number, {8 * width}")
        row = self.text.write(f"add i64 %job, {skipped}")
        tensors = [self.text.field(row, 1 + self.program.count_of_numbers + k) for k in range(width)]
        return [tensors[0], *tensors[2:], *tensors]  # the gradient is read alone

    def _entries(self) -> list[str]:
        return [_task().function(), shared(), alone()]


def _task() -> Code:
    """``task(job, plan, task)``: a task's elements."""
    code = Code("task", "job", "plan", "task")
    at = code.add("%plan", code.mul("%task", 8 * len(TASK_FIELDS)))
    row, first, end = (code.field(at, TASKS + 1 + place) for place in range(len(TASK_FIELDS)))
    code.call("void", "range", "%job", row, code.add(row, 1), first, end)
    code.give()
    return code
