"""The table that Module.summary() returns."""

from __future__ import annotations

import math
from typing import Any

from alpha import Tensor, default_engine, float32, no_grad
from alpha.changes import Action, at_once, putting, setting
from alpha.errors import ArgumentError
from alpha.nn.hooks import Hooks
from alpha.nn.module import Module


def summarize(module: Module, input_shape: tuple[int, ...] | None) -> str:
    """One row per module: indented name and type, shape of its result (where an input's was given), own parameters."""
    shapes = {} if input_shape is None else _result_shapes(module, input_shape)
    rows = [("layer", "output shape", "parameters")]
    for name, part in module.named_modules():
        label = f"{'  ' * (name.count('.') + 1)}{name.rpartition('.')[2]}: " if name else ""
        count = sum(parameter.numel() for parameter in part.parameters(recurse=False))
        rows.append((f"{label}{type(part).__name__}", shapes.get(id(part), ""), f"{count:,}" if count else ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows]
    rule = "-" * max(len(line) for line in lines)
    return "\n".join([lines[0], rule, *lines[1:], rule, _totals(module)])


def _totals(module: Module) -> str:
    parameters, buffers = list(module.parameters()), list(module.buffers())
    total = sum(p.numel() for p in parameters)
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    mebibytes = sum(t.nbytes for t in (*parameters, *buffers)) / 2**20
    return f"{total:,} parameters, {trainable:,} trainable; {mebibytes:.1f} MiB with buffers"


def _result_shapes(module: Module, input_shape: tuple[int, ...]) -> dict[int, str]:
    """The shape of each module's (last) result when zeros are run through; modes and hooks are left as they were."""
    if not isinstance(input_shape, tuple | list) or not all(isinstance(n, int) and n > 0 for n in input_shape):
        raise ArgumentError(f"[summary] expected a shape with the batch, as (1, 32, 32, 3), got {input_shape!r}")
    shapes: dict[int, str] = {}

    def record(part: Module, args: tuple[Any, ...], result: Any) -> None:
        shapes[id(part)] = _shape_of(result)

    parts = list(module.modules())
    before = [_restoring(part, name) for part in parts for name in ("training", "_hooks")]
    # What an interrupt within the first of the two leaves undone, the second does.
    try:
        try:
            at_once([setting(part, "_hooks", Hooks.with_last(part._hooks, record)) for part in parts])
            with no_grad():
                module.eval()(_zeros(module, tuple(input_shape)))
        finally:
            at_once(before)
    finally:
        at_once(before)
    return shapes


def _restoring(part: Module, name: str) -> Action:
    """The action that makes an attribute what it is now, the class's default too."""
    attributes = vars(part)
    return putting(attributes, name, attributes[name]) if name in attributes else (dict.pop, attributes, name, None)


def _zeros(module: Module, shape: tuple[int, ...]) -> Tensor:
    first = next(module.parameters(), None)
    engine = default_engine() if first is None else first.engine
    zeros = engine.empty(shape, float32 if first is None else first.dtype)
    if math.prod(shape):
        engine.fill(zeros, 0)
    return zeros


def _shape_of(result: Any) -> str:
    if isinstance(result, Tensor):
        return str(result.shape)
    if isinstance(result, tuple | list):
        return ", ".join(_shape_of(item) for item in result)
    return type(result).__name__
