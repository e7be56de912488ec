"""The loop of a point-wise program: rows of elements, whole vectors first, then what is left under a mask.

A job is a record of 8-byte fields: the address of a plan, the addresses of the results and of the tensors, and the
numbers: float64, or int64 where the loop computes in integers. Behind them stand the seed, the first counter and the
threshold of bools that are drawn (``DRAWN``): they hold where the first 24 bits of an element's random word reach it. A
plan is one of integers, shared by all calls with these shapes and strides:

    tasks, rows, elements per row, rows per task, elements per task, outer axes;
    for each result and tensor the bytes from an element of a row to the next;
    for each outer axis, innermost first: its length, and for each result and tensor the bytes along it.

A task is some whole rows, or where rows are long a part of one.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpha.cpu.isa import ISA
from alpha.cpu.loops import division, halves, turns
from alpha.cpu.loops.code import TASKS, Code, alone, attributes, shared
from alpha.cpu.loops.drawn import Draw
from alpha.cpu.loops.elements import BOOL, BOOLS, DRAWN, FLOAT, SIGNED, SINGLE, Element
from alpha.cpu.loops.integers import Integers
from alpha.cpu.loops.lanes import Lanes, Text, Value, spread
from alpha.cpu.loops.machine import pointer_to
from alpha.expressions import integers, writers
from alpha.expressions.program import Program

ROWS, ELEMENTS, TASK_ROWS, TASK_ELEMENTS, AXES, STEPS = range(TASKS + 1, TASKS + 7)
"""Places in a plan behind the number of tasks; from STEPS on those of each result and tensor, then the axes."""

DENSE, SAME, STRIDED = "dense", "same", "strided"
"""How the elements of a row lie: one after the other, one for all, or some other way apart."""

_SMALL = 12
"""Instructions below which a turn of the loop computes several vectors: the loop itself would cost as much."""


@dataclass(frozen=True)
class Layout:
    """What a loop is made for, beside its program.

    Attributes:
        computed: what it computes in; each element of a tensor is converted to it.
        tensors: for each tensor its elements, and how these lie.
        is_flat: whether there are no outer axes.
        streams: whether results other than bools are written past the caches; each row of them is aligned to whole
            vectors.
        aligns: whether rows are made so: what is before their first whole vector is written through the caches.
        half: what results are stored as, where that is half of what is computed in and they are no bools.
    """

    computed: Element
    tensors: tuple[tuple[Element, str], ...]
    is_flat: bool
    streams: bool
    aligns: bool = False
    half: Element | None = None

    @property
    def stored(self) -> Element:
        """What results are stored as that are no bools."""
        return self.half or self.computed


def ir_of(program: Program, layout: Layout, fused: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared"."""
    return Writer(program, layout, fused).module()


class Writer:
    """Writes one module.

    Attributes:
        kind: what the function "range" returns, as LLVM names it.
    """

    kind = "void"

    def __init__(self, program: Program, layout: Layout, fused: bool) -> None:
        self.program, self.layout = program, layout
        self.text = Code("range", "job", "first_row", "end_row", "first", "end", result=self.kind)
        self.lanes = lanes_of(layout, fused, self.text)
        self.functions = integers.FUNCTIONS if layout.computed.is_integer else writers.FUNCTIONS
        self.results = len(program.results)
        self.pointers: list[Value] = []  # of the row: of each result, then of each tensor
        self.same: dict[int, Value] = {}  # tensors and numbers that are one value along the row, in every lane
        self.draw: Draw | None = None

    def module(self) -> str:
        """The module's text."""
        body = self._range()
        parts = [*sorted(self.text.declarations)]
        if self.text.turns:
            parts.append(turns.functions(self.text.turns, self.lanes.count, pointer_to("i64")))
        parts += [division.functions(b, self.lanes.count) for b in sorted(self.text.divisions)]
        parts += self.text.functions.values()
        return "\n".join([*parts, body, *self._entries(), attributes(), "!0 = !{ i32 1 }"])

    def _entries(self) -> list[str]:
        """The functions that run a job."""
        return [task().function(), shared(), alone(_everything)]

    # -- one range of rows and elements --------------------------------------------------------------------------

    def _range(self) -> str:
        """``range(job, first_row, end_row, first, end)``: those elements of those rows."""
        text, plan = self.text, self.text.field("%job", 0)
        bases = self._bases()
        place = 1 + len(bases)
        numbers = [self._number(text.field("%job", place + k)) for k in range(self.program.count_of_numbers)]
        if DRAWN in [element.kind for element, _ in self.layout.tensors]:
            place += len(numbers)
            self.draw = Draw(self.lanes, self._unroll(), *[text.field("%job", place + k) for k in range(3)])
        text.act("br label %row")
        text.label("row")
        text.act("%row_number = phi i64 [ %first_row, %entry ], [ %next_row, %row_end ]")
        self._carry("row", ("entry", ""), ("row_end", "part"))
        self._elements(self._begin_row(plan, bases, numbers))
        text.label("row_end")
        text.act("%next_row = add i64 %row_number, 1")
        text.act("%more_rows = icmp slt i64 %next_row, %end_row")
        text.act("br i1 %more_rows, label %row, label %return")
        text.label("return")
        self._return()
        return text.function()

    def _begin_row(self, plan: Value, bases: list[Value], numbers: list[Value]) -> list[Value]:
        """Finds what is the same along a row; the bytes from an element to the next of each tensor that has strides."""
        self.pointers = self._row_pointers(plan, bases)
        steps = [
            self.text.field(plan, STEPS + self.results + k) if spacing == STRIDED else ""
            for k, (_, spacing) in enumerate(self.layout.tensors)
        ]
        self.same = {self.program.tensors + k: value for k, value in enumerate(numbers)}
        for k, (element, spacing) in enumerate(self.layout.tensors):
            if spacing == SAME:
                value = self._load(element.scalar, self.pointers[self.results + k], element.bits // 8)
                self.same[k] = self._converted(self._spread(value, element.scalar), k)
        return steps

    def _elements(self, steps: list[Value]) -> None:
        """The elements of a row: whole turns of vectors, then vectors of which the last may be a part.

        Where rows are to be aligned a part of a vector comes first.
        """
        row_block = self.text.block
        aligned = self._aligned_from() if self.layout.aligns else None
        self.text.act(f"br label %{'vectors' if aligned is None else 'parts'}")
        self._vectors(steps, f"[ %first, %{row_block} ]" if aligned is None else "[ %p, %parts_end ]", row_block)
        self._parts(steps, aligned, row_block)

    def _vectors(self, steps: list[Value], origin: str, row_block: str) -> None:
        """The turns of whole vectors; ``origin``: the first element's index, and the block that it comes from."""
        text, whole = self.text, self.lanes.count * self._unroll()
        text.label("vectors")
        text.act(f"%i = phi i64 {origin}, [ %next_i, %whole_end ]")
        self._carry("whole", (row_block, "row"), ("whole_end", "whole_next"))
        text.act("%left = sub i64 %end, %i")
        text.act(f"%are_whole = icmp sge i64 %left, {whole}")
        text.act("br i1 %are_whole, label %whole, label %parts")
        text.label("whole")
        for turn in range(self._unroll()):
            self._vector(turn, steps, "%i", None)
        text.forget()
        text.act(f"%next_i = add i64 %i, {whole}")
        text.act("br label %whole_end")
        text.label("whole_end")
        text.act("br label %vectors")

    def _parts(self, steps: list[Value], aligned: Value | None, row_block: str) -> None:
        """The vectors that may be parts: at a row's end, and at its beginning up to the index ``aligned``."""
        text, until, origin = self.text, "%end", ""
        text.label("parts")
        if aligned is not None:
            until, origin = "%until", f"[ %first, %{row_block} ], "
            text.act(f"%until = phi i64 [ {aligned}, %{row_block} ], [ %end, %vectors ], [ %until, %part_end ]")
        text.act(f"%p = phi i64 {origin}[ %i, %vectors ], [ %next_p, %part_end ]")
        self._carry("part", ("vectors", "whole"), ("part_end", "part_next"))
        text.act(f"%p_left = sub i64 {until}, %p")
        text.act("%is_part = icmp sgt i64 %p_left, 0")
        text.act(f"br i1 %is_part, label %part, label %{'row_end' if aligned is None else 'parts_end'}")
        text.label("part")
        self._vector(0, steps, "%p", "%p_left")
        text.forget()
        text.act(f"%further = add i64 %p, {self.lanes.count}")
        text.act(f"%is_further = icmp slt i64 %further, {until}")
        text.act(f"%next_p = select i1 %is_further, i64 %further, i64 {until}")
        text.act("br label %part_end")
        text.label("part_end")
        text.act("br label %parts")
        if aligned is not None:
            text.label("parts_end")
            text.act("%is_row_end = icmp sge i64 %p, %end")
            text.act("br i1 %is_row_end, label %row_end, label %vectors")

    def _aligned_from(self) -> Value:
        """The place in a row from which the first result is aligned to whole vectors, the row's end at most.

        The cache line that a row shares with the next is asked for early: it is written through the caches, and all
        that is written past them would wait for it.
        """
        write, size = self.text.write, self.layout.stored.bits // 8
        first, last = (self._address(self.pointers[0], place, size) for place in ("%first", "%end"))
        byte = pointer_to("i8")
        name = f"llvm.prefetch.p0{'' if byte == 'ptr' else 'i8'}"
        self.text.declarations.add(f"declare void @{name}({byte}, i32, i32, i32)")
        self.text.act(f"call void @{name}({byte} {write(f'inttoptr i64 {last} to {byte}')}, i32 1, i32 3, i32 1)")
        missing = write(f"and i64 {write(f'sub i64 0, {first}')}, {ISA.bytes - 1}")
        place = write(f"add i64 %first, {write(f'udiv i64 {missing}, {size}')}")
        return write(f"select i1 {write(f'icmp slt i64 {place}, %end')}, i64 {place}, i64 %end")

    def _bases(self) -> list[Value]:
        """Where the results and the tensors begin, from the job's fields after the plan."""
        return [self.text.field("%job", 1 + k) for k in range(self.results + self.program.tensors)]

    def _carry(self, name: str, *origins: tuple[str, str]) -> None:
        """Begins a block with what goes from turn to turn, under a name; ``origins``: blocks, and its name there."""

    def _return(self) -> None:
        """Ends the range."""
        self.text.act("ret void")

    def _unroll(self) -> int:
        return 4 if len(self.program.instructions) < _SMALL and not self._has_functions() else 1

    def _has_functions(self) -> bool:
        return any(one.operation not in _CHEAP for one in self.program.instructions)

    def _load(self, kind: str, address: Value, align: int) -> Value:
        pointer = self.text.write(f"inttoptr i64 {address} to {pointer_to(kind)}")
        return self.text.write(f"load {kind}, {pointer_to(kind)} {pointer}, align {align}")

    def _number(self, bits: Value) -> Value:
        """A number of the job in every lane, in what is computed in."""
        lanes, write = self.lanes, self.text.write
        if self.layout.computed.is_integer:
            value = bits if lanes.bits == 64 else write(f"trunc i64 {bits} to {lanes.scalar}")
        else:
            value = write(f"bitcast i64 {bits} to double")
            if lanes.bits != 64:
                value = write(f"fptrunc double {value} to {lanes.scalar}")
        return self._spread(value, lanes.scalar)

    def _spread(self, value: Value, kind: str) -> Value:
        return spread(self.text, value, kind, self.lanes.count)

    def _converted(self, value: Value, k: int) -> Value:
        """Elements of a tensor as what is computed in; those of a condition as a mask.

        What is beyond an integer's range becomes what the processor makes of it, as in NumPy.
        """
        lanes, write, wanted = self.lanes, self.text.write, self.layout.computed
        element = self.layout.tensors[k][0]
        if element.is_half:
            value, element = halves.extended(self.text, value, element, lanes.count), SINGLE
        kind = f"<{lanes.count} x {element.scalar}>"
        if element.kind == BOOL or wanted.kind == BOOL:
            differs = "fcmp une" if element.kind == FLOAT else "icmp ne"
            mask = write(f"{differs} {kind} {value}, zeroinitializer")
            if self.program.conditions[k] or wanted.kind == BOOL:
                return mask
            return lanes.select(mask, lanes.number(1.0), lanes.number(0.0))
        if element == wanted:
            return value
        if element.kind == FLOAT and wanted.is_integer:
            whole = f"<{lanes.count} x i{max(32, wanted.bits)}>"
            value, kind = write(f"fptosi {kind} {value} to {whole}"), whole
            return value if kind == lanes.floats else write(f"trunc {kind} {value} to {lanes.floats}")
        longer = element.bits < wanted.bits
        if wanted.is_integer:
            step = ("sext" if element.kind == SIGNED else "zext") if longer else "trunc"
            return value if element.bits == wanted.bits else write(f"{step} {kind} {value} to {lanes.floats}")
        step = "sitofp" if element.kind == SIGNED else "uitofp"
        if element.kind == FLOAT:
            step = "fpext" if longer else "fptrunc"
        return write(f"{step} {kind} {value} to {lanes.floats}")

    def _row_pointers(self, plan: Value, bases: list[Value]) -> list[Value]:
        """The addresses of a row's beginning."""
        if self.layout.is_flat:
            return bases
        text, count = self.text, len(bases)
        axes = text.field(plan, AXES)
        first_axis = text.write(f"add i64 {plan}, {8 * (STEPS + count)}")
        text.act("br label %axis")
        text.label("axis")
        text.act("%axis_number = phi i64 [ 0, %row ], [ %next_axis, %axis ]")
        text.act("%rest = phi i64 [ %row_number, %row ], [ %next_rest, %axis ]")
        text.act(f"%axis_at = phi i64 [ {first_axis}, %row ], [ %next_axis_at, %axis ]")
        for k, base in enumerate(bases):
            text.act(f"%at{k} = phi i64 [ {base}, %row ], [ %next_at{k}, %axis ]")
        length = text.field("%axis_at", 0)
        text.act(f"%next_rest = udiv i64 %rest, {length}")
        text.act(f"%whole_turns = mul i64 %next_rest, {length}")
        text.act("%index = sub i64 %rest, %whole_turns")
        for k in range(count):
            stride = text.field("%axis_at", 1 + k)
            text.act(f"%skip{k} = mul i64 %index, {stride}")
            text.act(f"%next_at{k} = add i64 %at{k}, %skip{k}")
        text.act("%next_axis = add i64 %axis_number, 1")
        text.act(f"%next_axis_at = add i64 %axis_at, {8 * (1 + count)}")
        text.act(f"%more_axes = icmp slt i64 %next_axis, {axes}")
        text.act("br i1 %more_axes, label %axis, label %row_begin")
        text.label("row_begin")
        return [f"%next_at{k}" for k in range(count)]

    # -- one vector ----------------------------------------------------------------------------------------------

    def _vector(self, turn: int, steps: list[Value], index: Value, left: Value | None) -> None:
        """Loads, computes and stores the elements from an index on: a whole vector, or as many as are left.

        ``turn``: which of the vectors of a turn of the loop.
        """
        lanes, text = self.lanes, self.text
        i = index if turn == 0 else text.write(f"add i64 {index}, {turn * lanes.count}")
        mask = None if left is None else self._mask(left)
        slots: list[Value] = []
        for k in range(self.program.tensors):
            slots.append(self.same[k] if k in self.same else self._loaded(k, turn, i, steps[k], mask, left))
        slots += [self.same[self.program.tensors + k] for k in range(self.program.count_of_numbers)]
        for one in self.program.instructions:
            if one.operation == "constant":
                slots.append(lanes.number(one.value))
            else:
                slots.append(self.functions[one.operation](lanes, *[slots[slot] for slot in one.operands]))
        self._put(slots, i, mask, turn)

    def _put(self, slots: list[Value], i: Value, mask: Value | None, turn: int) -> None:
        """Stores the results."""
        lanes, text = self.lanes, self.text
        for k, (slot, is_bool) in enumerate(zip(self.program.results, self.program.bools, strict=True)):
            value, element = slots[slot], self.layout.stored
            if element.is_half and not is_bool:
                value = halves.rounded(text, value, element, lanes.count)
            if is_bool:
                value, element = text.write(f"zext {lanes.masks} {value} to <{lanes.count} x i8>"), BOOLS
            self._store(element, value, self._address(self.pointers[k], i, element.bits // 8), mask)

    def _mask(self, left: Value) -> Value:
        """The lanes below a count."""
        kind = f"<{self.lanes.count} x i32>"
        most = self.text.write(f"icmp slt i64 {left}, {self.lanes.count}")
        fewer = self.text.write(f"select i1 {most}, i64 {left}, i64 {self.lanes.count}")
        count = self.text.write(f"trunc i64 {fewer} to i32")
        first = self.text.write(f"insertelement {kind} undef, i32 {count}, i32 0")
        every = self.text.write(f"shufflevector {kind} {first}, {kind} undef, {kind} zeroinitializer")
        places = ", ".join(f"i32 {k}" for k in range(self.lanes.count))
        return self.text.write(f"icmp slt {kind} <{places}>, {every}")

    def _address(self, base: Value, index: Value, size: int) -> Value:
        skipped = self.text.write(f"mul i64 {index}, {size}")
        return self.text.write(f"add i64 {base}, {skipped}")

    def _loaded(self, k: int, turn: int, i: Value, step: Value, mask: Value | None, left: Value | None) -> Value:
        """Elements of a tensor, as what is computed in."""
        element, spacing = self.layout.tensors[k]
        base, size = self.pointers[self.results + k], element.bits // 8
        if element.kind == DRAWN:
            assert self.draw is not None
            if spacing == DENSE and left is None:
                return self.draw.in_turn(self.text.write(f"add i64 {base}, %i"), turn)
            return self.draw.of_each(base, i, step if spacing == STRIDED else "1")
        if spacing == STRIDED:
            value = self._gathered(base, i, step, element, left)
        elif mask is None:
            value = self._load(f"<{self.lanes.count} x {element.scalar}>", self._address(base, i, size), size)
        else:
            value = self._masked_load(element, self._address(base, i, size), mask)
        return self._converted(value, k)

    def _gathered(self, base: Value, i: Value, step: Value, element: Element, left: Value | None) -> Value:
        """Elements some way apart; beyond the last the last again."""
        write, count = self.text.write, self.lanes.count
        kind, one = f"<{count} x {element.scalar}>", element.scalar
        last = None if left is None else write(f"sub i64 {left}, 1")
        value = "undef"
        for lane in range(count):
            place: Value = str(lane)
            if last is not None and lane:
                within = write(f"icmp slt i64 {lane}, {left}")
                place = write(f"select i1 {within}, i64 {lane}, i64 {last}")
            index = write(f"add i64 {i}, {place}")
            skipped = write(f"mul i64 {index}, {step}")
            loaded = self._load(one, write(f"add i64 {base}, {skipped}"), element.bits // 8)
            value = write(f"insertelement {kind} {value}, {one} {loaded}, i32 {lane}")
        return value

    def _masked_load(self, element: Element, address: Value, mask: Value) -> Value:
        kind = f"<{self.lanes.count} x {element.scalar}>"
        pointer, suffix = pointer_to(kind), f"v{self.lanes.count}{element.suffix}"
        name = f"llvm.masked.load.{suffix}.p0{'' if pointer == 'ptr' else suffix}"
        self.text.declarations.add(f"declare {kind} @{name}({pointer}, i32, {self.lanes.masks}, {kind})")
        at = self.text.write(f"inttoptr i64 {address} to {pointer}")
        zeros = f"{kind} zeroinitializer"
        return self.text.write(
            f"call {kind} @{name}({pointer} {at}, i32 {element.bits // 8}, {self.lanes.masks} {mask}, {zeros})"
        )

    def _store(self, element: Element, value: Value, address: Value, mask: Value | None) -> None:
        kind, align = f"<{self.lanes.count} x {element.scalar}>", element.bits // 8
        pointer = pointer_to(kind)
        at = self.text.write(f"inttoptr i64 {address} to {pointer}")
        nbytes = self.lanes.count * align
        if mask is None and self.layout.streams and element != BOOLS and nbytes >= _STREAMED:
            self.text.act(f"store {kind} {value}, {pointer} {at}, align {min(nbytes, ISA.bytes)}, !nontemporal !0")
            return
        if mask is None:
            self.text.act(f"store {kind} {value}, {pointer} {at}, align {align}")
            return
        suffix = f"v{self.lanes.count}{element.suffix}"
        name = f"llvm.masked.store.{suffix}.p0{'' if pointer == 'ptr' else suffix}"
        self.text.declarations.add(f"declare void @{name}({kind}, {pointer}, i32, {self.lanes.masks})")
        self.text.act(f"call void @{name}({kind} {value}, {pointer} {at}, i32 {align}, {self.lanes.masks} {mask})")


def lanes_of(layout: Layout, fused: bool, text: Text) -> Lanes:
    """The vectors of a loop: as many lanes as the widest of all that it reads and computes in has in one.

    Integers that are cut shorter have twice as many: what becomes of one vector is stored by the instruction that cuts
    it, which goes through the caches.
    """
    computed = layout.computed
    widest = max(computed.bits, *[element.bits for element, spacing in layout.tensors if spacing != SAME], 0)
    count = ISA.lanes(widest // 8)
    if computed.is_integer and computed.bits < widest:
        count *= 2
    return Integers(computed, count, text) if computed.is_integer else Lanes(computed.bits, count, fused, text)


_STREAMED = 16
"""Bytes of the shortest vectors that are written past the caches."""

_CHEAP = (
    "constant", "add", "sub", "mul", "div", "neg", "abs", "sqrt", "rsqrt", "sign", "floor", "ceil", "maximum",
    "minimum", "clamp", "where", "eq", "ne", "lt", "le", "gt", "ge", "isfinite", "logical_and", "logical_or",
    "logical_xor", "logical_not",
)  # fmt: skip
"""Operations of one or a few instructions of the processor's."""


def task() -> Code:
    """``task(job, plan, task)``: whole rows, or a part of one."""
    code = Code("task", "job", "plan", "task")
    code.call("void", "range", "%job", *bounds(code))
    code.give()
    return code


def bounds(code: Code) -> list[Value]:
    """The first row of ``%task`` and the one after its last, and so of the elements of a row."""
    rows, elements, task_rows, task_elements = (
        code.field("%plan", place) for place in (ROWS, ELEMENTS, TASK_ROWS, TASK_ELEMENTS)
    )
    pieces = code.quotient(code.sub(code.add(elements, task_elements), 1), task_elements)
    row = code.mul(code.quotient("%task", pieces), task_rows)
    first = code.mul(code.rest("%task", pieces), task_elements)
    end_row, end = code.smaller(code.add(row, task_rows), rows), code.smaller(code.add(first, task_elements), elements)
    return [row, end_row, first, end]


def _everything(code: Code) -> None:
    """All rows at once."""
    code.call("void", "range", "%job", 0, code.field("%plan", ROWS), 0, code.field("%plan", ELEMENTS))
