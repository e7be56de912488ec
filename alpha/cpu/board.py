"""The board on which a launch posts its job for the native workers, and the atomic steps of reading and writing it.

A job is a compiled function and its arguments. Whoever takes part calls it once, and inside it draws tasks from a
counter until none is left (``alpha.cpu.sharing``).
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64
"""Bytes of a cache line: what different threads write lies in different ones."""

STATE, EPOCH, ENTRY, RESULT, TASKS = (LINE * line for line in range(5))
"""Where a board holds: how many have joined, and whether one may; the job's number; the job; the sum of its results;
and how many of its tasks were drawn."""

ARGUMENTS, LIMIT, FAILED = ENTRY + 8, ENTRY + 16, RESULT + 8
"""Beside them: the job's arguments, how many threads it wants, how many calls failed."""

STOP, BEDS = EPOCH + 8, EPOCH + 16
"""And whether the workers are to end; where the first of them sleeps (``alpha.cpu.sleep``)."""

BOARD = 5 * LINE
"""Bytes of a board."""

OPEN = 1 << 32
"""In a board's state: the job may be joined."""

_I64, _BYTE = ir.IntType(64), ir.IntType(8)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I64.as_pointer())


@intrinsic
def take_task(typing_context: Any, counter: Any) -> Any:
    """``take_task(counter)``: adds 1 to the int64 at an address, atomically; returns what was there."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), ir.Constant(_I64, 1), "monotonic")

    return types.int64(types.int64), codegen


@intrinsic
def add(typing_context: Any, address: Any, value: Any) -> Any:
    """Adds to the int64 at an address, atomically and in order with all else."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load(typing_context: Any, address: Any) -> Any:
    """The int64 at an address, before anything that is read after it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store(typing_context: Any, address: Any, value: Any) -> Any:
    """Writes an int64 to an address, after anything that was written before it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def replace(typing_context: Any, address: Any, old: Any, new: Any) -> Any:
    """Writes ``new`` to an address if ``old`` is there; whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typing_context: Any) -> Any:
    """Tells the processor that a loop is waiting, where it has a way to be told."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        if platform.machine().lower() in ("x86_64", "amd64"):
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def call(typing_context: Any, board: Any, entry: Any, arguments: Any) -> Any:
    """Calls a job by its address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64, _I64])
        builder.call(builder.inttoptr(args[1], kind.as_pointer()), [args[0], args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def job(typing_context: Any, kernel: Any, arguments: Any) -> Any:
    """``job(kernel, arguments)``: the addresses of a function that calls a compiled kernel, and of its arguments.

    The arguments lie in the caller's frame, so the job must end before the caller does. The function adds what the
    kernel returns to the board's result, and 1 to its failures where the kernel raised.
    """
    signature = kernel.get_call_type(typing_context, tuple(arguments), {})

    def codegen(context: Any, builder: Any, outer: Any, values: Any) -> Any:
        compiled = kernel.dispatcher.overloads[signature.args]
        context.add_linking_libs([compiled.library])
        kept = cgutils.alloca_once_value(builder, values[1])
        entry = _entry(context, builder, compiled, signature, outer.args[1], values[1].type)
        pair = [builder.ptrtoint(address, _I64) for address in (entry, kept)]
        return context.make_tuple(builder, outer.return_type, pair)

    return types.UniTuple(types.int64, 2)(kernel, arguments), codegen


def _entry(context: Any, builder: Any, compiled: Any, signature: Any, kind: Any, layout: Any) -> Any:
    """A function of (board, address of the arguments) in the caller's module."""
    name = f"{compiled.fndesc.llvm_func_name}.entry"
    function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [_I64, _I64]), name)
    function.linkage = "internal"
    inner = ir.IRBuilder(function.append_basic_block("entry"))
    board, address = function.args
    values = inner.load(inner.inttoptr(address, layout.as_pointer()))
    status, result = context.call_internal_no_propagate(
        inner, compiled.fndesc, signature, cgutils.unpack_tuple(inner, values, len(kind))
    )
    if signature.return_type != types.none:
        place = _pointer(inner, inner.add(board, ir.Constant(_I64, RESULT)))
        inner.atomic_rmw("add", place, context.cast(inner, result, signature.return_type, types.int64), "monotonic")
    failures = _pointer(inner, inner.add(board, ir.Constant(_I64, FAILED)))
    inner.atomic_rmw("add", failures, inner.zext(status.is_error, _I64), "monotonic")
    inner.ret_void()
    return function


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def unseen(board, last):  # type: ignore[no-untyped-def]
    """Whether a job may be joined that is not number ``last``."""
    return load(board + STATE) >= OPEN and load(board + EPOCH) != last


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def stopping(board):  # type: ignore[no-untyped-def]
    """Whether the workers are to end."""
    return load(board + STOP) != 0
