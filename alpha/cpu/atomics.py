"""Atomic operations on int64 values at addresses, for compiled kernels: how threads share tasks and jobs."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

I64 = ir.IntType(64)


def pointer(builder: Any, address: Any) -> Any:
    """The int64 at an address, as LLVM points to it."""
    return builder.inttoptr(address, I64.as_pointer())


@intrinsic
def take_task(typing_context: Any, counter: Any) -> Any:
    """``take_task(counter)``: adds 1 to the int64 at an address, atomically; returns the value before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", pointer(builder, args[0]), ir.Constant(I64, 1), "monotonic")

    return types.int64(types.int64), codegen


@intrinsic
def add(typing_context: Any, address: Any, value: Any) -> Any:
    """Adds to the int64 at an address, atomically and in one order with all other atomic steps."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load(typing_context: Any, address: Any) -> Any:
    """Reads the int64 at an address, before anything that the code reads after it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store(typing_context: Any, address: Any, value: Any) -> Any:
    """Writes an int64 to an address, after anything that the code wrote before it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def get(typing_context: Any, address: Any) -> Any:
    """Reads the int64 at an address, in no order with what other threads do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(pointer(builder, args[0]), "monotonic", 8)

    return types.int64(types.int64), codegen


@intrinsic
def put(typing_context: Any, address: Any, value: Any) -> Any:
    """Writes an int64 to an address, in no order with what other threads do."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], pointer(builder, args[0]), "monotonic", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def compare_exchange(typing_context: Any, address: Any, old: Any, new: Any) -> Any:
    """Writes ``new`` to an address if ``old`` is there, in one step; returns whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(pointer(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typing_context: Any) -> Any:
    """Tells the processor that a loop is waiting, where it has an instruction for that."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        if platform.machine().lower() in ("x86_64", "amd64"):
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), codegen
