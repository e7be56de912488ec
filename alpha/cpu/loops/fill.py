"""The loop that writes one number everywhere.

A job is a record of 8-byte fields: the address, the bytes, the tasks, and 8 bytes that are repeated.
"""

from __future__ import annotations

from alpha.cpu.isa import ISA
from alpha.cpu.job_slot import JOB_SLOT
from alpha.cpu.loops.loop import attributes, read
from alpha.cpu.loops.machine import pointer_to

TASK_BYTES = 1 << 18
"""Bytes per task, whole vectors."""

OUT, BYTES, TASKS, PATTERN = range(4)
"""Places in a job."""

VECTORS = 4
"""Vectors that a turn of the loop stores."""


def ir_of(streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared".

    ``streams``: written past the caches; then the address is aligned to whole vectors.
    """
    end = "\n!0 = !{i32 1}" if streams else ""
    return "\n".join([_range(streams), _task(), _shared(), _alone(), attributes()]) + end


def _range(streams: bool) -> str:
    """``range(first, end, pattern)``: the bytes between two addresses."""
    count, turn = ISA.lanes(8), VECTORS * ISA.bytes
    vector, word, byte = (pointer_to(kind) for kind in (f"<{count} x i64>", "i64", "i8"))
    align, hint = (ISA.bytes, ", !nontemporal !0") if streams else (1, "")
    stores = "\n".join(
        f"""  %at{k} = add i64 %i, {k * ISA.bytes}
  %pointer{k} = inttoptr i64 %at{k} to {vector}
  store <{count} x i64> %every, {vector} %pointer{k}, align {align}{hint}"""
        for k in range(VECTORS)
    )
    return f"""define internal void @range(i64 %first, i64 %end, i64 %pattern) noinline #0 {{
entry:
  %one = insertelement <{count} x i64> undef, i64 %pattern, i32 0
  %every = shufflevector <{count} x i64> %one, <{count} x i64> undef, <{count} x i32> zeroinitializer
  br label %turns
turns:
  %i = phi i64 [ %first, %entry ], [ %next_i, %turn ]
  %next_i = add i64 %i, {turn}
  %is_turn = icmp sle i64 %next_i, %end
  br i1 %is_turn, label %turn, label %words
turn:
{stores}
  br label %turns
words:
  %w = phi i64 [ %i, %turns ], [ %next_w, %word ]
  %next_w = add i64 %w, 8
  %is_word = icmp sle i64 %next_w, %end
  br i1 %is_word, label %word, label %bytes
word:
  %word_pointer = inttoptr i64 %w to {word}
  store i64 %pattern, {word} %word_pointer, align 1
  br label %words
bytes:
  %b = phi i64 [ %w, %words ], [ %next_b, %byte ]
  %rest = phi i64 [ %pattern, %words ], [ %next_rest, %byte ]
  %is_byte = icmp slt i64 %b, %end
  br i1 %is_byte, label %byte, label %return
byte:
  %byte_pointer = inttoptr i64 %b to {byte}
  %lowest = trunc i64 %rest to i8
  store i8 %lowest, {byte} %byte_pointer
  %next_b = add i64 %b, 1
  %next_rest = lshr i64 %rest, 8
  br label %bytes
return:
  ret void
}}"""


def _task() -> str:
    """``task(job, task)``: the bytes of a task."""
    return f"""define internal void @task(i64 %job, i64 %task) noinline #0 {{
entry:
{read("%job", "out_address", OUT)}
{read("%job", "size", BYTES)}
{read("%job", "pattern", PATTERN)}
  %skipped = mul i64 %task, {TASK_BYTES}
  %first = add i64 %out_address, %skipped
  %after = add i64 %first, {TASK_BYTES}
  %last = add i64 %out_address, %size
  %is_within = icmp slt i64 %after, %last
  %end = select i1 %is_within, i64 %after, i64 %last
  call void @range(i64 %first, i64 %end, i64 %pattern)
  ret void
}}"""


def _shared() -> str:
    """``shared(slot, job)``: tasks until none is left."""
    kind = pointer_to("i64")
    return f"""define void @shared(i64 %slot, i64 %job) #0 {{
entry:
{read("%job", "tasks", TASKS)}
  %counter_at = add i64 %slot, {JOB_SLOT.tasks}
  %counter = inttoptr i64 %counter_at to {kind}
  br label %draw
draw:
  %task = atomicrmw add {kind} %counter, i64 1 monotonic
  %is_one = icmp slt i64 %task, %tasks
  br i1 %is_one, label %run, label %done
run:
  call void @task(i64 %job, i64 %task)
  br label %draw
done:
  fence seq_cst
  ret void
}}"""


def _alone() -> str:
    """``alone(job)``: all bytes."""
    byte = pointer_to("i8")
    return f"""define void @alone({byte} %record) #0 {{
entry:
  %job = ptrtoint {byte} %record to i64
{read("%job", "out_address", OUT)}
{read("%job", "size", BYTES)}
{read("%job", "pattern", PATTERN)}
  %last = add i64 %out_address, %size
  call void @range(i64 %out_address, i64 %last, i64 %pattern)
  fence seq_cst
  ret void
}}"""
