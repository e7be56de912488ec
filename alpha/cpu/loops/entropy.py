"""Cross entropy of rows of logits with labels, and its gradient, a row in the caches at a time."""

from __future__ import annotations

import math

from alpha.cpu.isa import FUSED
from alpha.cpu.loops import axis
from alpha.cpu.loops.code import Code, alone, module, shared
from alpha.cpu.loops.lanes import Lanes, Value, scalar
from alpha.cpu.loops.runs import Run
from alpha.cpu.loops.softmax import largest, powers
from alpha.expressions import elementary

LOSSES = 1
"""The place of the losses in a job of ``ir_of``; where they are kept the probabilities follow, then logits, labels and
the smoothing."""

_DX, _P, _LABELS, _SCALE, _SMOOTHING = range(1, 6)
"""Places in a job of ``grad_ir``."""


def ir_of(bits: int, stored: bool) -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` of lines.

    The losses are -log p[label] with p = softmax(x), smoothed, and p is kept if ``stored``. A label out of range is not
    followed: its loss is NaN.
    """
    return module([largest(bits), powers(bits, stored), _distance(bits), _losses(bits, stored)], shared(), alone())


def grad_ir(bits: int) -> str:
    """A module with the functions "alone" and "shared", of an ``AxisPlan`` of lines.

    dx = (p - target distribution) * scale[row]; a label out of range is no class. An infinite scale is inf - inf at the
    label, as PyTorch's, which scales each term by itself.
    """
    return module([_gradient(bits)], shared(), alone())


def _distance(bits: int) -> Code:
    """``distance(x, count, top)``: the sum of x - top."""
    code = Code("distance", "x", "count", "top", result="double", top="float" if bits == 32 else "double")
    run = Run(bits, code)
    top = run.spread("%top")
    terms = run.totals("%count", 1, lambda at, left: [run.sub(run.read(code.add("%x", at), left), top)])
    code.give("double", run.total("double", terms[0]))
    return code


def _followed(code: Code, labels: Value, row: Value) -> tuple[Value, Value]:
    """A row's label, and whether it is one of ``%rows`` classes."""
    label = code.load("i64", code.add(labels, code.mul(row, 8)), 8)
    return label, code.write(f"icmp ult i64 {label}, %rows")


def _losses(bits: int, stored: bool) -> Code:
    def lines(code: Code, first: Value, end: Value) -> None:
        run, size = Run(bits, code), code.mul("%rows", bits // 8)
        places = [LOSSES, *([LOSSES + 1] if stored else []), *[LOSSES + 1 + stored + k for k in range(2)]]
        losses, *p, logits, labels = (code.field("%job", place) for place in places)
        smoothing = code.field("%job", LOSSES + 3 + stored, "double")
        is_smooth = code.write(f"fcmp une double {smoothing}, 0.0")
        count = code.write("sitofp i64 %rows to double")

        def line(row: Value, _: list[Value]) -> None:
            x = code.add(logits, code.mul(row, size))
            y = code.add(p[0], code.mul(row, size)) if stored else x
            top = code.call(run.scalar, "largest", x, "%rows")
            total = code.call("double", "powers", x, y, "%rows", top, a3=run.scalar)
            if stored:
                share = run.spread(run.narrowed(code.write(f"fdiv double 1.0, {total}")))

                def put(at: Value, left: Value | None) -> None:
                    place = code.add(y, at)
                    run.put(run.mul(run.read(place, left), share), place, left)

                run.map("%rows", 4, put)
            label, is_class = _followed(code, labels, row)

            def target() -> list[Value]:
                value = code.load(run.scalar, code.add(x, code.mul(label, run.item)), run.item)
                return [run.double(code.do(f"fsub {run.scalar} {value}, {top}"))]

            (hit,) = code.choose(is_class, target, lambda: [scalar(math.nan, 64)], ["double"])

            def smoothed() -> list[Value]:
                distance = code.call("double", "distance", x, "%rows", top, a2=run.scalar)
                even = code.do(f"fmul double {smoothing}, {code.do(f'fdiv double {distance}, {count}')}")
                sure = code.do(f"fsub double 1.0, {smoothing}")
                return [code.do(f"fadd double {code.do(f'fmul double {sure}, {hit}')}, {even}")]

            (hit,) = code.choose(is_smooth, smoothed, lambda: [hit], ["double"])
            one = Lanes(64, 1, FUSED, code)
            logarithm = elementary.log(one, code.do(f"bitcast double {total} to {one.floats}"))
            logarithm = code.do(f"bitcast {one.floats} {logarithm} to double")
            loss = run.narrowed(code.do(f"fsub double {logarithm}, {hit}"))
            code.store(run.scalar, loss, code.add(losses, code.mul(row, run.item)), run.item)

        code.loop(first, end, line)

    return axis.bunches_task(lines)


def _gradient(bits: int) -> Code:
    def lines(code: Code, first: Value, end: Value) -> None:
        run, size = Run(bits, code), code.mul("%rows", bits // 8)
        results, p, labels, scales = (code.field("%job", place) for place in (_DX, _P, _LABELS, _SCALE))
        smoothing = code.field("%job", _SMOOTHING, "double")
        count = code.write("sitofp i64 %rows to double")
        even = run.narrowed(code.write(f"fdiv double {smoothing}, {count}"))
        sure = run.narrowed(code.write(f"fsub double 1.0, {smoothing}"))
        every = run.spread(even)

        def line(row: Value, _: list[Value]) -> None:
            offset = code.mul(row, size)
            x, dx = code.add(p, offset), code.add(results, offset)
            factor = code.load(run.scalar, code.add(scales, code.mul(row, run.item)), run.item)
            scale = run.spread(factor)

            def put(at: Value, left: Value | None) -> None:
                value = run.mul(run.sub(run.read(code.add(x, at), left), every), scale)
                run.put(value, code.add(dx, at), left)

            run.map("%rows", 4, put)
            label, is_class = _followed(code, labels, row)

            def hit() -> None:
                skipped = code.mul(label, run.item)
                value = code.load(run.scalar, code.add(x, skipped), run.item)
                for less in (even, sure):
                    value = code.do(f"fsub {run.scalar} {value}, {less}")
                none = code.do(f"fsub {run.scalar} {factor}, {factor}")
                value = code.do(f"fadd {run.scalar} {code.do(f'fmul {run.scalar} {value}, {factor}')}, {none}")
                code.store(run.scalar, value, code.add(dx, skipped), run.item)

            code.when(is_class, hit)

        code.loop(first, end, line)

    return axis.bunches_task(lines)
