"""Packing filters into panels, which inference keeps, and adding up parts of filter gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import steps
from alpha.autograd import is_inference
from alpha.cpu.base import HostEngine
from alpha.cpu.kernels import filters as kernels
from alpha.dtypes import DType
from alpha.repeated import is_unchanged
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]


def packed(engine: HostEngine, w: Tensor, shape: tuple[int, ...], by_output: bool, reused: bool = True) -> Tensor:
    """The filters in panels: (groups, panels, taps, depth, panel)."""
    groups, _, taps, _, _ = shape

    def pack(packed: Tensor) -> None:
        source = dense_array(engine, w).reshape(groups, w.shape[0] // groups, taps, w.shape[3])
        kernel = kernels.pack_by_output if by_output else kernels.pack_by_input
        engine.launch(kernel, source, engine.operand(packed))

    return kept(engine, w, shape, "by output" if by_output else "by input", pack, reused)


def kept(
    engine: HostEngine,
    w: Tensor,
    shape: tuple[int, ...],
    how: str,
    pack: Callable[[Tensor], None],
    reused: bool = True,
    dtype: DType | None = None,
) -> Tensor:
    """The filters packed to a shape in some way; from the cache if they have not changed.

    Inference keeps packed filters with the filters' storage, and packs once. Training changes filters before their next
    use, so nothing is kept, but where several passes go through the same filters (``alpha.repeated``). Captured steps
    use what is kept where they record no gradients, until the filters are written to. Nothing is kept where a NumPy
    array shares the storage, and may change it unnoticed, nor of filters that are not ``reused``: an activation that is
    multiplied once would take twice its memory while it lives. ``dtype``: of what is packed, if it is another one.
    """
    key = ("packed", how, w.offset, w.shape, w.strides, shape)
    found: tuple[int, Tensor] | None = w.storage.cache.pop(key, None)
    may_keep = steps.keeps((w,)) if is_inference() else not steps.is_watched()
    is_kept = may_keep and not w.storage.exported
    if found is not None and found[0] == w.version and is_kept:
        packed = found[1]
        steps.hold(packed)
    else:
        packed = engine.empty(shape, dtype or w.dtype)
        pack(packed)
        is_kept = is_kept and not steps.is_capturing()  # else they are packed in each replay
    if reused and is_kept and (serve_again(w) or is_unchanged(w.storage)):
        w.storage.cache[key] = (w.version, packed)
    return packed


def serve_again(w: Tensor) -> bool:
    """Whether these filters, once packed, are kept for later calls."""
    return not w.storage.exported and is_inference()


def dense_array(engine: HostEngine, x: Tensor) -> Array:
    """A tensor, or a row-major copy of it, as a kernel's array."""
    return engine.operand(engine.dense(x, range(x.ndim)))


def parts_of(engine: HostEngine, total: Tensor, parts: int) -> Tensor:
    """Memory for ``parts`` parts of a sum: the sum itself if there is only one."""
    return total if parts == 1 else engine.empty((parts, *total.shape), total.dtype)


def sum_parts(engine: HostEngine, parts: Tensor, total: Tensor) -> None:
    """Adds up the parts, unless the only part is the sum itself."""
    if parts is not total:
        count, tasks = parts.shape[0], -(-total.numel() // kernels.PART_NUMBERS)
        flat = engine.operand(parts).reshape(count, -1)
        engine.launch(kernels.add_parts, flat, engine.operand(total).ravel(), tasks=tasks)
