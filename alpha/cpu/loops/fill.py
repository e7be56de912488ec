"""The loop that writes one number everywhere.

A job is a record of 8-byte fields: the address of a plan, of the result, and 8 bytes that are repeated. A plan is one
of tasks and bytes.
"""

from __future__ import annotations

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import TASKS, Code, alone, attributes, shared
from alpha.cpu.loops.machine import pointer_to

TASK_BYTES = 1 << 18
"""Bytes per task, whole vectors."""

OUT, PATTERN = 1, 2
"""Places in a job."""

BYTES = TASKS + 1
"""The place of the bytes in a plan."""

VECTORS = 4
"""Vectors that a turn of the loop stores."""


def ir_of(streams: bool) -> str:
    """A module of LLVM IR with the functions "alone" and "shared".

    ``streams``: written past the caches; then the address is aligned to whole vectors.
    """
    end = "\n!0 = !{i32 1}" if streams else ""
    return "\n".join([_range(streams), _task().function(), shared(), alone(), attributes()]) + end


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


def _task() -> Code:
    """``task(job, plan, task)``: the bytes of a task, in memory when it ends, also those past the caches."""
    code = Code("task", "job", "plan", "task")
    out, skipped = code.field("%job", OUT), code.mul("%task", TASK_BYTES)
    end = code.smaller(code.add(skipped, TASK_BYTES), code.field("%plan", BYTES))
    code.call("void", "range", code.add(out, skipped), code.add(out, end), code.field("%job", PATTERN))
    code.act("fence seq_cst")
    code.give()
    return code
