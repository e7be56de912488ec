"""AttentionOperations: attention on the CPU engine, in blocks on its own micro-kernels."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import float64, int64, types

from alpha import caches
from alpha.arguments import Shape
from alpha.composed import attention as composed
from alpha.cpu import compile, tapes
from alpha.cpu.base import HostEngine
from alpha.cpu.compile import Entry
from alpha.cpu.isa import ISA
from alpha.cpu.kernels import attention as kernels
from alpha.cpu.kernels.attention import AttentionDropout, AttentionSizes
from alpha.dtypes import is_bool
from alpha.records import AttentionSettings, AttentionState
from alpha.tensor import Tensor

BLOCK = 128
"""Keys of a block of scores, forward: with a panel of queries it stays in the L1 cache."""

SHORT, SHORT_GRADIENT_BLOCK, GRADIENT_BLOCK, GRADIENT_ROWS = 512, 64, 128, 128
"""Keys up to which a gradient's blocks are narrow, so that causal ones skip more; keys of blocks; their queries."""

PANELS, TASKS_PER_THREAD = 8, 4
"""Most panels of queries of a forward task; fewer where threads would have few tasks."""

GRADIENT_TASKS = 16
"""Fewest tasks of a gradient, of long sequences: each chunk of keys sums the gradient of the queries by itself."""


_DROPOUT = struct.Struct("3qd").pack
"""An ``AttentionDropout`` as kernels are given it."""


class AttentionOperations(HostEngine):
    """Heads may lie anywhere: a table tells where each begins. The last axis lies dense, after a copy if need be."""

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, settings: AttentionSettings
    ) -> tuple[Tensor, Tensor]:
        q, k, v = (_lines(self, x) for x in (q, k, v))
        y = self.empty((*q.shape[:-1], v.shape[-1]), q.dtype, q.memory_order())
        lse = self.empty(q.shape[:-1], q.dtype)
        seen = _broadcast(mask, (*q.shape[:-1], k.shape[-2]))
        sizes, places, tasks = _plan(_layouts(q, k, v, seen, y), settings.causal, self.threads)
        addresses = [0 if x is None else x.address for x in (q, k, v, seen, y, lse)]
        self._attend(kernels.attention, q.dtype, tasks, sizes, settings, places, addresses)
        return y, lse

    def attention_grad(
        self, dy: Tensor, state: AttentionState, settings: AttentionSettings, needs: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        if needs[3]:  # sums over heads that share a mask's numbers: by the block, in the default's order
            return composed.attention_grad(self, dy, state, settings, needs)
        y, lse = state.y, state.lse
        dy, q, k, v = (_lines(self, x) for x in (dy, state.q, state.k, state.v))
        seen = _broadcast(state.mask, (*q.shape[:-1], k.shape[-2]))
        chunks = _gradient_sizes(q.shape, k.shape, v.shape[-1], q.dtype.itemsize, settings.causal)[1]
        parts = self.empty((chunks, *q.shape), q.dtype, (0, *(axis + 1 for axis in q.memory_order())))
        dq = parts.strided(0, q.shape, parts.strides[1:])
        dk, dv = self.empty_like(k), self.empty_like(v)
        layouts = _layouts(q, k, v, seen, y, dy, dq, dk, dv)
        sizes, places, tasks = _gradient_plan(layouts, settings.causal, parts.strides[0])
        addresses = [0 if x is None else x.address for x in (q, k, v, seen, y, lse, dy, dq, dk, dv)]
        self._attend(kernels.attention_grad, q.dtype, tasks, sizes, settings, places, addresses)
        dq = dq if chunks == 1 else self.reduce("sum", parts, (0,), False)
        return tuple([part if needed else None for part, needed in zip((dq, dk, dv, None), needs, strict=True)])

    def _attend(
        self,
        kernel: Any,
        dtype: np.dtype[Any],
        tasks: int,
        sizes: AttentionSizes,
        settings: AttentionSettings,
        places: Any,
        addresses: list[int],
    ) -> None:
        p = settings.dropout
        # Keeps where uniform >= p, computed exactly: (word >> 8) * 2**-24 >= p.
        dropout = AttentionDropout(
            math.ceil(p * 2**24), _signed(settings.seed), _signed(settings.offset), 1 / (1 - p) if p < 1 else 0.0
        )
        arguments = (1.0, sizes, dropout, float(settings.scale), places, *addresses)
        place, words = (settings.seed, settings.offset), sizes.heads * sizes.queries * sizes.keys
        drawn = self.redrawn(*place, words, is_again=kernel is not kernels.attention) if p else None
        live = None if drawn is None else (_DROPOUT(*dropout), 8, drawn)
        tapes.enter(_entry(kernel, dtype), max(1, min(self.threads, tasks)), arguments, live)


def _signed(word: int) -> int:
    """A 64-bit word as the int64 of the same bits."""
    return word - (1 << 64) if word >= 1 << 63 else word


def _lines(engine: HostEngine, x: Tensor) -> Tensor:
    """x with each token's numbers side by side."""
    if x.strides[-1] == 1 or x.shape[-1] == 1:
        return x
    order = x.memory_order()
    return engine.dense(x, (*(axis for axis in order if axis != x.ndim - 1), x.ndim - 1))


def _broadcast(mask: Tensor | None, shape: Shape) -> Tensor | None:
    """The mask as a view of a shape."""
    if mask is None:
        return None
    strides = tuple([0 if n == 1 else step for n, step in zip(mask.shape, mask.strides, strict=True)])
    return Tensor(mask.storage, mask.offset, shape, strides, mask.dtype)


_Layout = tuple[Shape, Shape, np.dtype[Any]] | None
"""Shape, strides and dtype of a tensor, None of one that is not there."""


def _layouts(*tensors: Tensor | None) -> tuple[_Layout, ...]:
    return tuple([None if x is None else (x.shape, x.strides, x.dtype) for x in tensors])


@caches.kept
def _plan(layouts: tuple[_Layout, ...], causal: bool, threads: int) -> tuple[AttentionSizes, Any, int]:
    """Sizes, places of the heads, and tasks of the forward pass."""
    (q, _, dtype), (k, *_), (v, *_) = _operands(layouts)
    panel = ISA.panel_of(q[-2], dtype.itemsize)
    heads, panels = math.prod(q[:-2]), -(-q[-2] // panel)
    together = max(1, min(PANELS, heads * panels // (TASKS_PER_THREAD * threads)))
    sizes = _common(q, k, v[-1], dtype.itemsize, causal)
    sizes = sizes._replace(panel=panel, chunk=panel * together, block=BLOCK, **_steps(layouts))
    return sizes, _places(layouts), heads * -(-sizes.queries // sizes.chunk)


@caches.kept
def _gradient_plan(layouts: tuple[_Layout, ...], causal: bool, part: int) -> tuple[AttentionSizes, Any, int]:
    """Sizes, places of the heads, and tasks of the gradient; ``part``: from a chunk's dq to the next one's."""
    (q, _, dtype), (k, *_), (v, *_) = _operands(layouts)
    sizes, chunks = _gradient_sizes(q, k, v[-1], dtype.itemsize, causal)
    sizes = sizes._replace(part=part * dtype.itemsize, **_steps(layouts))
    return sizes, _places(layouts), sizes.heads * chunks


def _operands(layouts: Sequence[_Layout]) -> list[tuple[Shape, Shape, np.dtype[Any]]]:
    """How query, key and value lie, which are always there."""
    return [layout for layout in layouts[:3] if layout is not None]


def _places(layouts: Sequence[_Layout]) -> Any:
    """Where each head begins in each tensor, in bytes; in the order of the kernels' table."""
    batch = _operands(layouts)[0][0][:-2]
    indices = np.indices(batch).reshape(len(batch), math.prod(batch))
    rows = [
        np.zeros(math.prod(batch), np.int64)
        if layout is None
        else np.array(layout[1][:-2], np.int64).reshape(len(batch)) * layout[2].itemsize @ indices
        for layout in layouts
    ]
    return np.ascontiguousarray(np.stack(rows), np.int64)


_NAMES = ("q", "k", "v", "mask", "y", "dy", "dq", "dk", "dv")
"""The tensors, in the order in which their lies are given."""


def _steps(layouts: Sequence[_Layout]) -> dict[str, int]:
    """The bytes from a token to the next in each tensor, and what kind of mask there is."""
    steps: dict[str, int] = {}
    for name, layout in zip(_NAMES, layouts, strict=False):
        if layout is not None:
            _, strides, dtype = layout
            steps[f"{name}_step"] = strides[-2] * dtype.itemsize
            if name == "mask":
                steps["mask"] = kernels.BOOL_MASK if is_bool(dtype) else kernels.ADDED_MASK
                steps["mask_key_step"] = strides[-1] * dtype.itemsize
    return steps


@lru_cache(maxsize=1024)
def _gradient_sizes(q: Shape, k: Shape, value_size: int, item: int, causal: bool) -> tuple[AttentionSizes, int]:
    """Sizes, and chunks of keys: the same for any number of threads, since they decide in which order it adds."""
    keys, panel = k[-2], ISA.panel_of(k[-2], item)
    block = SHORT_GRADIENT_BLOCK if keys <= SHORT else GRADIENT_BLOCK
    heads = math.prod(q[:-2])
    wanted = max(1, min(-(-GRADIENT_TASKS // heads), keys // SHORT))
    chunk = -(-keys // wanted // block) * block
    sizes = _common(q, k, value_size, item, causal)._replace(panel=panel, chunk=chunk, block=block, rows=GRADIENT_ROWS)
    return sizes, -(-keys // chunk)


def _common(q: Shape, k: Shape, value_size: int, item: int, causal: bool) -> AttentionSizes:
    settings = dict.fromkeys(AttentionSizes._fields, 0)
    settings.update(
        heads=math.prod(q[:-2]),
        queries=q[-2],
        keys=k[-2],
        size=q[-1],
        value_size=value_size,
        item=item,
        size_panel=ISA.panel_of(q[-1], item),
        value_panel=ISA.panel_of(value_size, item),
        causal=int(causal),
    )
    return AttentionSizes(**settings)


@cache
def _entry(kernel: Any, dtype: np.dtype[Any]) -> Entry:
    """A kernel for numbers of a dtype."""
    sizes = types.NamedUniTuple(int64, len(AttentionSizes._fields), AttentionSizes)
    dropout = types.NamedTuple([int64] * 3 + [float64], AttentionDropout)
    tensors = 6 if kernel is kernels.attention else 10
    return compile.entry(kernel, dtype, sizes, dropout, dtype, types.Array(int64, 2, "C"), *[int64] * tensors)
