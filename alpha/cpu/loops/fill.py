"""The loop that writes one number everywhere.

A job is a record of 8-byte fields: the address of a plan, of the result, a number, and the address of a word. A plan
says how the eight bytes that are repeated are made of the number: tasks, bytes, whether it is a float64 that is rounded
to float32, a mask of the bits that are taken, and a factor that repeats them. The word becomes 1 where the float64 is
beyond float32's finite numbers.
"""

from __future__ import annotations

from alpha.cpu.isa import ISA
from alpha.cpu.loops.code import TASKS, Code, alone, attributes, shared
from alpha.cpu.loops.lanes import Value
from alpha.cpu.loops.machine import pointer_to

TASK_BYTES = 1 << 18
"""Bytes per task, whole vectors."""

OUT, NUMBER, VERDICT = 1, 2, 3
"""Places in a job."""

BYTES, IS_ROUNDED, MASK, FACTOR = range(TASKS + 1, TASKS + 5)
"""Places in a plan."""

FLOAT32_MAX, SIGN_BIT = 0x47EFFFFFE0000000, 1 << 63
"""Bits of float64 numbers: float32's largest, and the sign."""

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
    code.call("void", "range", code.add(out, skipped), code.add(out, end), _pattern(code))
    code.act("fence seq_cst")
    code.give()
    return code


def _pattern(code: Code) -> Value:
    """The eight bytes that are repeated."""
    number = code.field("%job", NUMBER)
    is_rounded = code.write(f"icmp ne i64 {code.field('%plan', IS_ROUNDED)}, 0")
    rounded = code.write(f"fptrunc double {code.write(f'bitcast i64 {number} to double')} to float")
    bits = code.write(f"zext i32 {code.write(f'bitcast float {rounded} to i32')} to i64")
    size = code.write(f"bitcast i64 {code.write(f'and i64 {number}, {SIGN_BIT - 1}')} to double")
    is_beyond = code.write(f"fcmp ogt double {size}, 0x{FLOAT32_MAX:X}")
    refused = code.write(f"and i1 {is_rounded}, {is_beyond}")
    code.when(refused, lambda: code.store("i64", "1", code.field("%job", VERDICT), 8))
    chosen = code.write(f"select i1 {is_rounded}, i64 {bits}, i64 {number}")
    taken = code.write(f"and i64 {chosen}, {code.field('%plan', MASK)}")
    return code.mul(taken, code.field("%plan", FACTOR))
