"""JobSlot: shared memory through which the thread that launches a kernel hands it to the workers.

A job is a compiled function and its arguments. Each thread that takes part calls the function once, and inside it
draws tasks until none is left (``alpha.cpu.sharing``). A thread first draws the tasks of its share, which follow one
another: so it finds in its core's caches what it wrote there with the job before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from alpha.cpu.atomics import I64, load, pointer

CACHE_LINE = 64
"""Bytes of a cache line: fields that different threads write lie in different lines."""


class JobSlot(NamedTuple):
    """Offsets in bytes of the fields of a job slot, each an int64."""

    busy: int
    """1 while a thread has the slot for its job."""
    joined: int
    """Threads that have joined the job and not left it, plus ``JOINABLE`` while more may join."""
    number: int
    """The job's number: a worker takes part in a job whose number is not that of its last one."""
    stop: int
    """1 once the workers must end."""
    first_sleeper: int
    """Address of the first worker's ``Sleeper`` (``alpha.cpu.sleep``), or 0."""
    ready: int
    """Threads that a job can have without more being started: the workers and one, ``NO_MORE`` where none can be."""
    run: int
    """Address of the function by which a launch runs its job (``run_job`` of ``alpha.cpu.workers``), or 0."""
    draw: int
    """Address of the function by which kernels draw a task (``alpha.cpu.sharing.draw``), or 0."""
    entry: int
    """Address of the job's function."""
    arguments: int
    """Address of the function's arguments."""
    threads: int
    """Most threads that may take part."""
    result: int
    """Sum of what the kernel returned to each thread."""
    failures: int
    """Threads in which the kernel raised an error."""
    share_count: int
    """How many shares the job's tasks are divided into; at most ``MAX_SHARES``."""
    shares: int
    """The shares, a ``Share`` each."""
    nbytes: int
    """Size of the whole record."""


class Share(NamedTuple):
    """Offsets in bytes of the fields of a share: tasks that follow one another, for a thread to begin with."""

    drawn: int
    """How many of its tasks were drawn; it passes their number where threads look in vain."""
    slot: int
    """Address of the job slot whose share this is."""
    place: int
    """Which of its shares this is."""
    nbytes: int
    """Size of the whole record."""


MAX_SHARES = 64
"""With more threads than this, several begin with one share."""


def lay_out(record: Any, line_sizes: Mapping[str, int]) -> Any:
    """Offsets for a record of int64 fields, the last of which is the record's size.

    ``line_sizes``: the fields that begin a cache line, and the bytes kept for each; the others follow the one before.
    """
    offsets, end = [], 0
    for field in record._fields:
        if field in line_sizes or field == "nbytes":
            end = -(-end // CACHE_LINE) * CACHE_LINE
        offsets.append(end)
        end += line_sizes.get(field, 8)
    return record(*offsets)


SHARE: Share = lay_out(Share, {"drawn": 8})

JOB_SLOT: JobSlot = lay_out(
    JobSlot,
    {
        **dict.fromkeys(("busy", "joined", "number", "entry", "result", "share_count"), 8),
        "shares": MAX_SHARES * SHARE.nbytes,
    },
)

JOINABLE = 1 << 32
"""Added to a slot's ``joined`` while the job may be joined."""

NO_MORE = 1 << 32
"""A slot's ``ready`` once the system has refused a worker: a job has as many threads as there are."""


@intrinsic
def call(typing_context: Any, share: Any, entry: Any, arguments: Any) -> Any:
    """Calls a job: its function, by its address, with a share's address and that of its arguments."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64, I64])
        builder.call(builder.inttoptr(args[1], kind.as_pointer()), [args[0], args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def make_job(typing_context: Any, kernel: Any, arguments: Any) -> Any:
    """``make_job(kernel, arguments)``: the addresses of a function that calls a compiled kernel, and of its arguments.

    The first argument stands for the address of each thread's share, which the kernel gets in its place. The arguments
    lie in the caller's frame, so the job must end before the caller does. The function adds what the kernel returns to
    the slot's result, and 1 to its failures where the kernel raised.
    """
    signature = kernel.get_call_type(typing_context, tuple(arguments), {})

    def codegen(context: Any, builder: Any, outer: Any, values: Any) -> Any:
        compiled = kernel.dispatcher.overloads[signature.args]
        context.add_linking_libs([compiled.library])
        kept = cgutils.alloca_once_value(builder, values[1])
        entry = _entry(context, builder, compiled, signature, outer.args[1], values[1].type)
        pair = [builder.ptrtoint(address, I64) for address in (entry, kept)]
        return context.make_tuple(builder, outer.return_type, pair)

    return types.UniTuple(types.int64, 2)(kernel, arguments), codegen


def _entry(context: Any, builder: Any, compiled: Any, signature: Any, kind: Any, layout: Any) -> Any:
    """Adds a function of (share, address of the arguments) to the caller's module."""
    name = f"{compiled.fndesc.llvm_func_name}.entry"
    function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [I64, I64]), name)
    function.linkage = "internal"
    inner = ir.IRBuilder(function.append_basic_block("entry"))
    share, address = function.args
    slot = inner.load(pointer(inner, inner.add(share, ir.Constant(I64, SHARE.slot))))
    values = inner.load(inner.inttoptr(address, layout.as_pointer()))
    arguments = [share, *cgutils.unpack_tuple(inner, values, len(kind))[1:]]
    status, result = context.call_internal_no_propagate(inner, compiled.fndesc, signature, arguments)
    if signature.return_type != types.none:
        total = pointer(inner, inner.add(slot, ir.Constant(I64, JOB_SLOT.result)))
        inner.atomic_rmw("add", total, context.cast(inner, result, signature.return_type, types.int64), "monotonic")
    failures = pointer(inner, inner.add(slot, ir.Constant(I64, JOB_SLOT.failures)))
    inner.atomic_rmw("add", failures, inner.zext(status.is_error, I64), "monotonic")
    inner.ret_void()
    return function


@intrinsic
def draw_task(typing_context: Any, share: Any, tasks: Any) -> Any:
    """``draw_task(share, tasks)``: one of the tasks 0 to ``tasks - 1`` that none has drawn; ``tasks`` if none is left.

    All threads of a job give the same ``tasks``.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return drawn(builder, *args)

    return types.int64(types.int64, types.int64), codegen


def drawn(builder: Any, share: Any, tasks: Any) -> Any:
    """Writes what ``draw_task`` does."""
    slot = builder.load(pointer(builder, builder.add(share, ir.Constant(I64, SHARE.slot))))
    function = builder.load(pointer(builder, builder.add(slot, ir.Constant(I64, JOB_SLOT.draw))))
    kind = ir.FunctionType(I64, [I64, I64])
    return builder.call(builder.inttoptr(function, kind.as_pointer()), [share, tasks])


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def has_new_job(slot, last):  # type: ignore[no-untyped-def]
    """Whether a job may be joined whose number is not ``last``."""
    return load(slot + JOB_SLOT.joined) >= JOINABLE and load(slot + JOB_SLOT.number) != last


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def must_stop(slot):  # type: ignore[no-untyped-def]
    """Whether the workers must end."""
    return load(slot + JOB_SLOT.stop) != 0
