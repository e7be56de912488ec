"""The loop that writes a matrix of zeros with one number along its diagonal.

A job is a record of two 8-byte fields: the addresses of a plan and of the matrix, whose rows lie one after another. A
plan counts the tasks and the matrix's bytes, tells how many bytes lie between neighbours on the diagonal and where it
ends, and holds the number's bits.
"""

from __future__ import annotations

from collections.abc import Callable

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import Code, alone, module, places, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.machine import pointer_to

TASK_BYTES = 1 << 18
"""Bytes per task, whole vectors."""

PLAN = ("tasks", "bytes", "step", "diagonal_end", "bits")
"""Fields of a plan."""

_PLACES = places(PLAN)

_OUT = 1
"""Place in a job."""

_VECTORS = 4
"""Vectors that a turn of the loop stores."""

_Write = Callable[[Code, Value, int, bool], None]


def ir_of(itemsize: int, streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared".

    Args:
        itemsize: bytes of a number: 1, 2, 4 or 8.
        streams: whether the zeros are written past the caches; then the address is aligned to whole vectors.
    """
    return module([_task(itemsize, streams)], shared(), alone(), "!0 = !{ i32 1 }")


def _task(itemsize: int, streams: bool) -> Code:
    """``task(job, plan, task)``: a range of bytes becomes zeros, then the part of the diagonal in it is written."""
    code = Code("task", "job", "plan", "task")
    out, skipped = code.field("%job", _OUT), code.mul("%task", TASK_BYTES)
    nbytes, step, diagonal_end, bits = code.fields("%plan", _PLACES, "bytes", "step", "diagonal_end", "bits")
    end = code.smaller(code.add(skipped, TASK_BYTES), nbytes)
    _clear(code, code.add(out, skipped), code.add(out, end), itemsize, streams)
    if streams:  # what is on its way past the caches must not arrive after the diagonal
        code.act("fence seq_cst")
    first = code.mul(code.quotient(code.add(skipped, code.sub(step, 1)), step), step)
    kind = f"i{8 * itemsize}"
    number = bits if itemsize == 8 else code.write(f"trunc i64 {bits} to {kind}")

    def put(at: Value, _: list[Value]) -> None:
        code.store(kind, number, code.add(out, at), itemsize)

    code.loop(first, code.smaller(end, diagonal_end), put, step=step)
    code.give()
    return code


def _clear(code: Code, first: Value, end: Value, itemsize: int, streams: bool) -> None:
    """Writes zeros between two addresses: several vectors per turn, then a vector, then a number."""
    at = first
    for nbytes, count in ((ISA.bytes, _VECTORS), (ISA.bytes, 1), (itemsize, 1)):
        write = _clear_vector if nbytes == ISA.bytes else _clear_number

        def turn(
            place: Value, _: list[Value], write: _Write = write, offsets: range = range(0, count * nbytes, nbytes)
        ) -> None:
            for offset in offsets:
                write(code, code.add(place, offset), itemsize, streams)

        (at,) = code.loop(at, code.sub(end, count * nbytes - 1), turn, step=count * nbytes)


def _clear_vector(code: Code, address: Value, itemsize: int, streams: bool) -> None:
    kind = f"<{ISA.lanes(8)} x i64>"
    align, hint = (ISA.bytes, ", !nontemporal !0") if streams else (itemsize, "")
    pointer = code.pointer(kind, address)
    code.act(f"store {kind} zeroinitializer, {pointer_to(kind)} {pointer}, align {align}{hint}")


def _clear_number(code: Code, address: Value, itemsize: int, streams: bool) -> None:
    code.store(f"i{8 * itemsize}", "0", address, itemsize)
