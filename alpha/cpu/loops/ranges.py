"""The loop that copies indices and makes the copies safe to follow: each is read once, compared, and mended.

A job is a record of 8-byte fields: plan, indices, copies, the least index and the one behind the largest, the index to
ignore and whether there is one, whether indices are checked, and the address of what is found. That has two words,
before the first index 0 and the largest int64: whether an index was ignored, and the place of the first out of range.
A plan has the number of tasks and that of the indices.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Value, spread
from alpha.cpu.loops.machine import pointer_to

TASK = 1 << 14
"""Indices of a task."""

_COUNT = 1
"""The place of the number of indices in a plan."""

_SOURCE, _OUT, _LOW, _HIGH, _IGNORED, _MAY_IGNORE, _CHECKING, _FOUND = range(1, 9)
"""Places in a job."""


def ir_of(streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared"; ``streams``: past the caches, whole vectors."""
    return module([_task(streams)], shared(), alone(), "!0 = !{ i32 1 }")


def _task(streams: bool) -> Code:
    """``task(job, plan, task)``: some indices, vectors first."""
    code = Code("task", "job", "plan", "task")
    code.declarations.add("declare i64 @llvm.cttz.i64(i64, i1)")
    first = code.mul("%task", TASK)
    end = code.smaller(code.add(first, TASK), code.field("%plan", _COUNT))
    source, out, found = (code.field("%job", place) for place in (_SOURCE, _OUT, _FOUND))
    at, ignored = first, "0"
    for count in (ISA.lanes(8), 1):
        mend = _Mend(code, count)

        def turn(place: Value, now: Sequence[Value], count: int = count, mend: _Mend = mend) -> list[Value]:
            skipped = code.mul(place, 8)
            given = code.load(mend.kind, code.add(source, skipped), 8)
            mended, is_ignored, is_wrong = mend.mended(given)
            hint, align = (", !nontemporal !0", 8 * count) if streams and count > 1 else ("", 8)
            target = code.pointer(mend.kind, code.add(out, skipped))
            code.act(f"store {mend.kind} {mended}, {pointer_to(mend.kind)} {target}, align {align}{hint}")
            wrong = mend.bits(is_wrong)

            def tell() -> None:
                skipped = code.call("i64", "llvm.cttz.i64", wrong, "true", a1="i1")
                place_found = code.pointer("i64", code.add(found, 8))
                code.do(f"atomicrmw umin {pointer_to('i64')} {place_found}, i64 {code.add(place, skipped)} monotonic")

            code.when(code.write(f"icmp ne i64 {wrong}, 0"), tell)
            return [code.write(f"or i64 {now[0]}, {mend.bits(is_ignored)}")]

        at, ignored = code.loop(at, code.sub(end, count - 1), turn, [("i64", ignored)], count)
    code.when(code.write(f"icmp ne i64 {ignored}, 0"), lambda: code.store("i64", "1", found, 8))
    code.give()
    return code


class _Mend:
    """Mends a vector of indices, or one."""

    def __init__(self, code: Code, count: int) -> None:
        """Spreads what they are compared with."""
        self.code, self.count = code, count
        self.kind, self.masks = ("i64", "i1") if count == 1 else (f"<{count} x i64>", f"<{count} x i1>")
        low, high, ignored, may_ignore, checking = (
            code.field("%job", place) for place in (_LOW, _HIGH, _IGNORED, _MAY_IGNORE, _CHECKING)
        )
        self.low, self.high, self.ignored = self._spread(low), self._spread(high), self._spread(ignored)
        self.may_ignore = self._spread(code.write(f"icmp ne i64 {may_ignore}, 0"), "i1")
        self.kept = self._spread(code.sub(0, checking))
        """All bits of an index out of range that stays as it is, for the error; else none."""

    def mended(self, given: Value) -> tuple[Value, Value, Value]:
        """Indices that may be followed; whether each was ignored, and whether it is out of range."""
        write, kind, masks = self.code.write, self.kind, self.masks
        zero = "0" if self.count == 1 else "zeroinitializer"
        is_equal = write(f"icmp eq {kind} {given}, {self.ignored}")
        is_ignored = write(f"and {masks} {is_equal}, {self.may_ignore}")
        is_below, is_above = (
            write(f"icmp slt {kind} {given}, {self.low}"),
            write(f"icmp sge {kind} {given}, {self.high}"),
        )
        is_outside = write(f"or {masks} {is_below}, {is_above}")
        is_wrong = write(f"icmp ugt {masks} {is_outside}, {is_ignored}")  # outside, and not ignored
        is_from_end = write(f"icmp slt {kind} {given}, {zero}")
        counted = write(f"add {kind} {given}, {self.high}")
        mended = write(f"select {masks} {is_from_end}, {kind} {counted}, {kind} {given}")
        mended = write(f"select {masks} {is_ignored}, {kind} {zero}, {kind} {mended}")
        stays = write(f"and {kind} {given}, {self.kept}")
        return write(f"select {masks} {is_wrong}, {kind} {stays}, {kind} {mended}"), is_ignored, is_wrong

    def bits(self, mask: Value) -> Value:
        """A number that has a 1 for each lane of a mask."""
        if self.count > 1:
            mask = self.code.write(f"bitcast {self.masks} {mask} to i{self.count}")
        return self.code.write(f"zext i{self.count} {mask} to i64")

    def _spread(self, value: Value, kind: str = "i64") -> Value:
        return value if self.count == 1 else spread(self.code, value, kind, self.count)
