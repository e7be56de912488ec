"""Lines that are tasks: some whole ones together, or long ones in parts, whose results are merged in their order.

The plan has the fields ``lines``, ``bunch`` (lines of a task) and ``parts`` (of a line), by the sizes alone: so the
bits do not depend on the number of threads. The job has a place for the address of a counter, which begins with 0,
before room for what the parts make; a thread that has no others beside it needs none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value

Values = list[Value]


class CutLines(ABC):
    """Writes a kernel's functions that share the lines among tasks; a subclass writes what is made of a line.

    Attributes:
        kinds: LLVM's types of what is made of a line, or of a part of one, 8 bytes at most.
    """

    def __init__(self, fields: Sequence[str], kept: int, kinds: Sequence[str]) -> None:
        """``fields``: the plan's; ``kept``: the counter's place in a job."""
        self._places = places(fields)
        self._counter, self.kinds = kept, kinds

    @abstractmethod
    def whole(self) -> Code:
        """``whole(job, plan, first, end)``: lines that are not cut."""

    @abstractmethod
    def piece(self) -> Code:
        """``piece(job, plan, line, piece)``: what is made of a part of a line."""

    @abstractmethod
    def merged(self, code: Code, piece: Value, now: Values, other: Values) -> Values:
        """What is made of a line's parts up to a piece, from that of those before it and that of the piece."""

    @abstractmethod
    def put(self, code: Code, line: Value, values: Values) -> None:
        """Stores a line's results."""

    def module(self, functions: Sequence[Code]) -> str:
        """The module, with the functions that are called beside these."""
        entries = [self.whole(), self.piece(), self._task()]
        return module([*functions, *entries], shared(self._finish), alone(self._alone))

    def field(self, code: Code, name: str) -> Value:
        """A field of the plan."""
        return code.field("%plan", self._places[name], "double" if name == "divisor" else "i64")

    def _are_whole(self, code: Code) -> Value:
        return code.equal(self.field(code, "parts"), 1)

    def _kept(self, code: Code, task: Value) -> Value:
        """Where the values of a task's part are kept."""
        return code.add(code.add(code.field("%job", self._counter), 8), code.mul(task, 8 * len(self.kinds)))

    def _task(self) -> Code:
        """``task(job, plan, task)``: lines, or a part of one; the counter's address."""
        code = Code("task", "job", "plan", "task", result="i64")
        lines, bunch, parts = (self.field(code, name) for name in ("lines", "bunch", "parts"))

        def whole() -> None:
            first = code.mul("%task", bunch)
            code.call("void", "whole", "%job", "%plan", first, code.smaller(code.add(first, bunch), lines))

        def piece() -> None:
            line, part = code.quotient("%task", parts), code.rest("%task", parts)
            at = self._kept(code, "%task")
            for k, value in enumerate(code.several(self.kinds, "piece", "%job", "%plan", line, part)):
                code.store(self.kinds[k], value, code.add(at, 8 * k), 8)

        code.choose(self._are_whole(code), whole, piece)
        code.give("i64", code.field("%job", self._counter))
        return code

    def _merge(self, code: Code, part: Callable[[Value, Value], Values]) -> None:
        """Merges the parts of all lines, ``part(line, piece)`` each, and stores the results."""

        def line(number: Value, _: Values) -> None:
            def more(piece: Value, now: Values) -> Values:
                return self.merged(code, piece, now, part(number, piece))

            first = list(zip(self.kinds, part(number, "0"), strict=True))
            self.put(code, number, code.loop(1, self.field(code, "parts"), more, first)[1:])

        code.loop(0, self.field(code, "lines"), line)

    def _finish(self, code: Code) -> None:
        """What the thread does that ends the last task."""
        parts = self.field(code, "parts")

        def part(line: Value, piece: Value) -> Values:
            at = self._kept(code, code.add(code.mul(line, parts), piece))
            return [code.load(kind, code.add(at, 8 * k), 8) for k, kind in enumerate(self.kinds)]

        code.when(code.less(1, parts), lambda: self._merge(code, part))

    def _alone(self, code: Code) -> None:
        """What a thread does that has no others beside it."""
        lines = self.field(code, "lines")

        def part(line: Value, piece: Value) -> Values:
            return code.several(self.kinds, "piece", "%job", "%plan", line, piece)

        code.choose(
            self._are_whole(code),
            lambda: code.act(f"call void @whole(i64 %job, i64 %plan, i64 0, i64 {lines})"),
            lambda: self._merge(code, part),
        )
