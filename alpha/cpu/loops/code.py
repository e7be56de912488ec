"""Code: LLVM IR, as text, of functions with loops and branches; and the functions that run a kernel's tasks.

A kernel is called with a job, a record of 8-byte fields: the address of a plan, the addresses of the results and of the
tensors, and numbers. A plan is a record too, shared by all calls with these shapes and strides; its first field counts
the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import JOB_SLOT, SHARE
from alpha.cpu.loops.lanes import Text, Value
from alpha.cpu.loops.machine import pointer_to

TASKS = 0
"""The place of the tasks' number in a plan."""

ENTRIES = ("alone", "shared")
"""Functions that are called from outside."""

Carried = Sequence[tuple[str, Value]]
"""What goes from one turn of a loop to the next: LLVM's type of each value, and what it begins with."""


class Code(Text):
    """Writes one function. Its arguments are i64, or of the types that are given; so are numbers that it computes."""

    def __init__(self, name: str, *arguments: str, result: str = "void", **kinds: str) -> None:
        """``arguments``: names, in their order; ``kinds``: the types of those that are no i64."""
        super().__init__()
        given = ", ".join(f"{kinds.get(one, 'i64')} %{one}" for one in arguments)
        linkage = "" if name in ENTRIES else "internal "
        self._head = f"define {linkage}{result} @{name}({given}) noinline #0"

    def function(self) -> str:
        """The function's text."""
        body = "\n".join(f"  {line}" if not line.endswith(":") else line for line in self.lines)
        return f"{self._head} {{\nentry:\n{body}\n}}"

    # -- instructions --------------------------------------------------------------------------------------------

    def do(self, instruction: str) -> Value:
        """The value of an instruction that has to stand here: it reads memory, or has an effect."""
        name = self.name()
        self.act(f"{name} = {instruction}")
        return name

    def add(self, x: Value | int, y: Value | int) -> Value:
        return self.write(f"add i64 {x}, {y}")

    def sub(self, x: Value | int, y: Value | int) -> Value:
        return self.write(f"sub i64 {x}, {y}")

    def mul(self, x: Value | int, y: Value | int) -> Value:
        return self.write(f"mul i64 {x}, {y}")

    def quotient(self, x: Value | int, y: Value | int) -> Value:
        """x // y of numbers that are not negative."""
        return self.write(f"udiv i64 {x}, {y}")

    def rest(self, x: Value | int, y: Value | int) -> Value:
        """x % y of numbers that are not negative."""
        return self.write(f"urem i64 {x}, {y}")

    def less(self, x: Value | int, y: Value | int) -> Value:
        return self.write(f"icmp slt i64 {x}, {y}")

    def equal(self, x: Value | int, y: Value | int) -> Value:
        return self.write(f"icmp eq i64 {x}, {y}")

    def smaller(self, x: Value | int, y: Value | int) -> Value:
        """The smaller of two numbers."""
        return self.write(f"select i1 {self.less(x, y)}, i64 {x}, i64 {y}")

    def pointer(self, kind: str, address: Value) -> Value:
        return self.write(f"inttoptr i64 {address} to {pointer_to(kind)}")

    def load(self, kind: str, address: Value, align: int) -> Value:
        return self.do(f"load {kind}, {pointer_to(kind)} {self.pointer(kind, address)}, align {align}")

    def store(self, kind: str, value: Value, address: Value, align: int) -> None:
        self.act(f"store {kind} {value}, {pointer_to(kind)} {self.pointer(kind, address)}, align {align}")

    def prefetch(self, address: Value) -> None:
        """Asks for the cache line at an address, which need be no memory's, to be brought to the L2 cache."""
        kind = pointer_to("i8")
        name = f"llvm.prefetch.p0{'' if kind == 'ptr' else 'i8'}"
        self.declarations.add(f"declare void @{name}({kind}, i32, i32, i32)")
        self.act(f"call void @{name}({kind} {self.pointer('i8', address)}, i32 0, i32 2, i32 1)")

    def field(self, record: Value, place: int, kind: str = "i64") -> Value:
        """A field of a record that does not change meanwhile."""
        pointer = self.pointer(kind, self.add(record, 8 * place))
        return self.write(f"load {kind}, {pointer_to(kind)} {pointer}, align 8")

    def fields(self, record: Value, places: Mapping[str, int], *names: str) -> list[Value]:
        """Fields of such a record by their names."""
        return [self.field(record, places[name]) for name in names]

    def room(self, kind: str, count: Value | int) -> Value:
        """The address of memory for so many values, of whole vectors' alignment, for as long as the function runs."""
        made = self.do(f"alloca {kind}, i64 {count}, align {ISA.bytes}")
        return self.write(f"ptrtoint {pointer_to(kind)} {made} to i64")

    def call(self, result: str, name: str, *arguments: Value | int, **kinds: str) -> Value:
        """Calls a function with i64; ``kinds``: other types, by the argument's place as ``a0``, ``a1``."""
        given = ", ".join(f"{kinds.get(f'a{place}', 'i64')} {one}" for place, one in enumerate(arguments))
        if result == "void":
            self.act(f"call void @{name}({given})")
            return ""
        return self.do(f"call {result} @{name}({given})")

    def several(self, kinds: Sequence[str], name: str, *arguments: Value | int) -> list[Value]:
        """The values that a function returns by ``give_several``."""
        found = self.call(returned(kinds), name, *arguments)
        if len(kinds) == 1:
            return [found]
        return [self.write(f"extractvalue {returned(kinds)} {found}, {k}") for k in range(len(kinds))]

    # -- control -------------------------------------------------------------------------------------------------

    def loop(
        self,
        first: Value | int,
        end: Value | int,
        body: Callable[[Value, list[Value]], Sequence[Value] | None],
        carried: Carried = (),
        step: Value | int = 1,
    ) -> list[Value]:
        """``body(i, values)`` for each i from ``first`` below ``end``; it returns the values of the next turn.

        Returns i and the values after the last turn.
        """
        head, turn, after = self.new_label(), self.new_label(), self.new_label()
        before = self.block
        self.act(f"br label %{head}")
        self.label(head)
        i, names = self.name(), [self.name() for _ in carried]
        place = len(self.lines)
        self.lines += [""] * (1 + len(names))
        self.act(f"{(going_on := self.name())} = icmp slt i64 {i}, {end}")
        self.act(f"br i1 {going_on}, label %{turn}, label %{after}")
        known = dict(self.written)
        self.label(turn)
        following = body(i, list(names)) or ()
        self.act(f"{(next_i := self.name())} = add i64 {i}, {step}")
        back = self.block
        self.act(f"br label %{head}")
        self.lines[place] = f"{i} = phi i64 [ {first}, %{before} ], [ {next_i}, %{back} ]"
        for k, (name, (kind, start), value) in enumerate(zip(names, carried, following, strict=True)):
            self.lines[place + 1 + k] = f"{name} = phi {kind} [ {start}, %{before} ], [ {value}, %{back} ]"
        self.written = known
        self.label(after)
        return [i, *names]

    def choose(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] | None = None,
        kinds: Sequence[str] = (),
    ) -> list[Value]:
        """Does one thing where a condition holds, and the other where not; returns their values, of these types."""
        yes, no, after = self.new_label(), self.new_label(), self.new_label()
        self.act(f"br i1 {condition}, label %{yes}, label %{no}")
        known, found = dict(self.written), []
        for label, branch in ((yes, then), (no, otherwise)):
            self.label(label)
            values = (branch() if branch is not None else None) or ()
            found.append((values, self.block))
            self.act(f"br label %{after}")
            self.written = dict(known)
        self.label(after)
        (ones, one_block), (others, other_block) = found
        return [
            self.do(f"phi {kind} [ {one}, %{one_block} ], [ {other}, %{other_block} ]")
            for kind, one, other in zip(kinds, ones, others, strict=True)
        ]

    def when(self, condition: Value, then: Callable[[], None]) -> None:
        """Does something where a condition holds."""
        self.choose(condition, then)

    def give(self, kind: str = "void", value: Value = "") -> None:
        """Ends the function."""
        self.act(f"ret {kind} {value}".rstrip())

    def give_several(self, kinds: Sequence[str], values: Sequence[Value]) -> None:
        """Ends the function, whose result is of the type ``returned(kinds)``."""
        found = values[0]
        if len(kinds) > 1:
            found = "undef"
            for k, (kind, value) in enumerate(zip(kinds, values, strict=True)):
                found = self.write(f"insertvalue {returned(kinds)} {found}, {kind} {value}, {k}")
        self.give(returned(kinds), found)


def places(*records: Sequence[str]) -> dict[str, int]:
    """Where fields are in a record, by their names; of several records one behind the other."""
    return {name: place for place, name in enumerate(chain(*records))}


def returned(kinds: Sequence[str]) -> str:
    """LLVM's type of what a function returns that gives values of these types."""
    return kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"


def module(functions: Sequence[Code], *texts: str) -> str:
    """A module of LLVM IR of functions, and of others that are text already."""
    declarations = sorted({one for code in functions for one in code.declarations})
    return "\n".join([*declarations, *[code.function() for code in functions], *texts, attributes()])


def attributes() -> str:
    """Vectors as wide as they are written, where LLVM would split them for some processors."""
    return f'attributes #0 = {{ "prefer-vector-width"="{8 * ISA.bytes}" "min-legal-vector-width"="{8 * ISA.bytes}" }}'


def shared(finish: Callable[[Code], None] | None = None) -> str:
    """``shared(share, job)``: calls ``task(job, plan, task)`` for tasks until none is left.

    ``finish``: writes what the thread does that ends the last of all tasks, of ``%job`` and ``%plan``. Then ``task``
    returns the address of a counter of the tasks that have ended, which begins with 0, and otherwise nothing.
    """
    code = Code("shared", "share", "job")
    plan = _plan(code)
    tasks, kind = code.field(plan, TASKS), pointer_to("i64")
    slot = code.do(f"load i64, {kind} {code.pointer('i64', code.add('%share', SHARE.slot))}, align 8")
    function = code.do(f"load i64, {kind} {code.pointer('i64', code.add(slot, JOB_SLOT.draw))}, align 8")
    function = code.do(f"inttoptr i64 {function} to {pointer_to('i64 (i64, i64)')}")
    draw, run, done = (code.new_label() for _ in range(3))
    code.act(f"br label %{draw}")
    code.label(draw)
    task = code.do(f"call i64 {function}(i64 %share, i64 {tasks})")
    code.act(f"br i1 {code.do(f'icmp slt i64 {task}, {tasks}')}, label %{run}, label %{done}")
    code.label(run)
    if finish is None:
        code.act(_TASK.format(task))
    else:
        parts = code.call("i64", "task", "%job", plan, task)
        ended = code.do(f"atomicrmw add {kind} {code.pointer('i64', parts)}, i64 1 acq_rel")
        last = code.do(f"icmp eq i64 {code.do(f'add i64 {ended}, 1')}, {tasks}")
        code.when(last, lambda: finish(code))
    code.act(f"br label %{draw}")
    code.label(done)
    code.give()
    return code.function()


def alone(body: Callable[[Code], None] | None = None) -> str:
    """``alone(job)``: all tasks, one after the other, or what ``body`` writes, of ``%job`` and ``%plan``."""
    byte = pointer_to("i8")
    code = Code("alone", "record", record=byte)
    code.act(f"%job = ptrtoint {byte} %record to i64")
    plan = _plan(code)
    if body is None:
        code.loop(0, code.field(plan, TASKS), lambda task, _: code.act(_TASK.format(task)))
    else:
        body(code)
    code.give()
    return code.function()


_TASK = "call void @task(i64 %job, i64 %plan, i64 {})"


def _plan(code: Code) -> Value:
    """The job's plan, under that name."""
    code.act(f"%plan = load i64, {pointer_to('i64')} {code.pointer('i64', '%job')}, align 8")
    return "%plan"
