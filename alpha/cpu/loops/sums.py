"""The loop of a sum: a point-wise program whose one result is not stored, but added up over all elements.

A job is that of ``alpha.cpu.loops.loop`` with two fields more at its end: the address of a record of parts, and the
number by which the sum is divided. The result is one number. The record of parts holds how many tasks are done, and
each one's sum; a job that one thread runs needs none.

Sums are taken in float64: each lane adds its elements one after the other, those of float64 with what rounding took
(Neumaier, 1974); the lanes' sums are merged by halves, and so are the tasks', in the order of the elements. Tasks are
at most ``MOST_TASKS``, by the sizes alone, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import JOB_SLOT
from alpha.cpu.loops import loop
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.machine import pointer_to
from alpha.expressions.program import Program

MOST_TASKS = 128
"""Tasks of a sum at most: their sums stand on the stack of a thread that runs all of them."""


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
        return [_task(), _finish(1 + places + 1, self.layout.computed.bits), _shared(1 + places), _alone()]

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


def _task() -> str:
    """``task(job, plan, task)``: the sum of a task's elements."""
    return f"""define internal double @task(i64 %job, i64 %plan, i64 %task) noinline #0 {{
entry:
{chr(10).join(loop.read("%plan", name, place) for name, place in loop.PLAN_FIELDS)}
{loop.BOUNDS}
  %sum = call double @range(i64 %job, i64 %first_row, i64 %end_row, i64 %first, i64 %end)
  ret double %sum
}}"""


def _finish(divisor: int, bits: int) -> str:
    """``finish(job, sums, count)``: merges the tasks' sums and stores the result; ``divisor``: its place in a job."""
    double = pointer_to("double")
    scalar = "float" if bits == 32 else "double"
    narrow = "fptrunc double %quotient to float" if bits == 32 else "fadd double %quotient, -0.0"
    return f"""define internal void @finish(i64 %job, i64 %sums, i64 %count) noinline #0 {{
entry:
  br label %halve
halve:
  %left = phi i64 [ %count, %entry ], [ %half, %merged ]
  %is_one = icmp sle i64 %left, 1
  br i1 %is_one, label %store, label %merge
merge:
  %more = add i64 %left, 1
  %half = sdiv i64 %more, 2
  %pairs = sub i64 %left, %half
  %skipped = mul i64 %half, 8
  br label %pair
pair:
  %i = phi i64 [ 0, %merge ], [ %next, %pair ]
  %bytes = mul i64 %i, 8
  %at = add i64 %sums, %bytes
  %other_at = add i64 %at, %skipped
  %pointer = inttoptr i64 %at to {double}
  %other_pointer = inttoptr i64 %other_at to {double}
  %one = load double, {double} %pointer
  %other = load double, {double} %other_pointer
  %sum = fadd double %one, %other
  store double %sum, {double} %pointer
  %next = add i64 %i, 1
  %go_on = icmp slt i64 %next, %pairs
  br i1 %go_on, label %pair, label %merged
merged:
  br label %halve
store:
  %total_pointer = inttoptr i64 %sums to {double}
  %total = load double, {double} %total_pointer
{loop.read("%job", "divisor_bits", divisor)}
  %divisor = bitcast i64 %divisor_bits to double
  %quotient = fdiv double %total, %divisor
  %result = {narrow}
{loop.read("%job", "out", 1)}
  %result_pointer = inttoptr i64 %out to {pointer_to(scalar)}
  store {scalar} %result, {pointer_to(scalar)} %result_pointer
  ret void
}}"""


def _shared(parts: int) -> str:
    """``shared(slot, job)``: tasks until none is left; who ends the last of them merges the sums."""
    kind, double = pointer_to("i64"), pointer_to("double")
    return f"""define void @shared(i64 %slot, i64 %job) #0 {{
entry:
{loop.read("%job", "plan", 0)}
{loop.read("%plan", "tasks", loop.COUNT)}
{loop.read("%job", "parts", parts)}
  %counter_at = add i64 %slot, {JOB_SLOT.tasks}
  %counter = inttoptr i64 %counter_at to {kind}
  %done = inttoptr i64 %parts to {kind}
  %sums = add i64 %parts, 8
  %last = sub i64 %tasks, 1
  br label %draw
draw:
  %task = atomicrmw add {kind} %counter, i64 1 monotonic
  %is_one = icmp slt i64 %task, %tasks
  br i1 %is_one, label %run, label %return
run:
  %sum = call double @task(i64 %job, i64 %plan, i64 %task)
  %bytes = mul i64 %task, 8
  %at = add i64 %sums, %bytes
  %pointer = inttoptr i64 %at to {double}
  store double %sum, {double} %pointer
  %before = atomicrmw add {kind} %done, i64 1 acq_rel
  %was_last = icmp eq i64 %before, %last
  br i1 %was_last, label %finish, label %draw
finish:
  call void @finish(i64 %job, i64 %sums, i64 %tasks)
  ret void
return:
  ret void
}}"""


def _alone() -> str:
    """``alone(job)``: all tasks."""
    byte, double = pointer_to("i8"), pointer_to("double")
    return f"""define void @alone({byte} %record) #0 {{
entry:
  %room = alloca double, i32 {MOST_TASKS}
  %sums = ptrtoint {double} %room to i64
  %job = ptrtoint {byte} %record to i64
{loop.read("%job", "plan", 0)}
{loop.read("%plan", "tasks", loop.COUNT)}
  br label %run
run:
  %task = phi i64 [ 0, %entry ], [ %next, %run ]
  %sum = call double @task(i64 %job, i64 %plan, i64 %task)
  %bytes = mul i64 %task, 8
  %at = add i64 %sums, %bytes
  %pointer = inttoptr i64 %at to {double}
  store double %sum, {double} %pointer
  %next = add i64 %task, 1
  %go_on = icmp slt i64 %next, %tasks
  br i1 %go_on, label %run, label %finish
finish:
  call void @finish(i64 %job, i64 %sums, i64 %tasks)
  ret void
}}"""
