"""The parts of a split sum, added: compensated, in a fixed order, so that a result is the same each time."""

from __future__ import annotations

from alpha.tensor import Storage, Tensor
from cu32.base import DeviceEngine, c_type
from cu32.compiler import Source

SOURCES = tuple(Source("parts", REAL=real) for real in ("float", "double"))

MANY = 16
"""From so many parts on, a warp adds an element's, where there are too few elements to fill the device."""


def sum_parts(engine: DeviceEngine, parts: Storage, number: int, out: Tensor) -> None:
    """out[i] = the sum over p < number of element p * out.numel() + i of ``parts``; out is dense, the order its own."""
    count = out.numel()
    source = Source("parts", REAL=c_type(out.dtype))
    if number >= MANY and count < 512 * engine.device.multiprocessors:
        engine.launch(source, "sum_many_parts", -(-count * 32 // 256), 256, parts, out, count, number)
    else:
        engine.launch(source, "sum_parts", engine.blocks(count, 256), 256, parts, out, count, number)
