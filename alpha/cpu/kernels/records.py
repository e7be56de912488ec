"""What kernels that are called with a record read: its words, and the tasks that it is divided into."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from alpha.cpu.atomics import I64
from alpha.cpu.compile import inlined
from alpha.cpu.job_slot import draw_task


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def get(_typing: Any, address: Any, position: Any) -> Any:
    """Reads the int64 at a position of an array, by the array's address."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(builder.inttoptr(arguments[0], I64.as_pointer()), [arguments[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def put(_typing: Any, address: Any, position: Any, value: Any) -> Any:
    """Writes an int64 to a position of an array, by the array's address."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        address, position, value = arguments
        builder.store(value, builder.gep(builder.inttoptr(address, I64.as_pointer()), [position]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@inlined
def next_task(share, task, tasks):  # type: ignore[no-untyped-def]
    """The task after ``task`` (-1: the first) that is this thread's, or ``tasks``; without a share (0) all are."""
    if share == 0:
        return task + 1
    return draw_task(share, tasks)
