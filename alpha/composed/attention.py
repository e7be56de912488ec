"""Attention and its gradients by blocks of queries: no more of the scores is in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import random
from alpha.composed.arrays import filled, transposed
from alpha.dtypes import is_bool

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.records import AttentionSettings, AttentionState
    from alpha.tensor import Tensor

BLOCK = 1 << 22
"""Scores of a block, about; at least those of one query of every head."""


def attention(
    engine: Engine, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, settings: AttentionSettings
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithms of the softmax's sums: +infinity of a query that sees no key."""
    do = engine.elementwise
    y = engine.empty((*q.shape[:-1], v.shape[-1]), q.dtype, q.memory_order())
    lse = engine.empty(q.shape[:-1], q.dtype)
    for first, last, seen in _blocks(q, k, settings):
        scores = _scores(engine, q, k, mask, settings, first, last, seen)
        top = engine.reduce("max", scores, (scores.ndim - 1,), True)
        top = do("where", do("eq", top, -math.inf), 0, top)  # less -inf, -inf would be NaN
        powers = do("exp", do("sub", scores, top))
        total = engine.reduce("sum", powers, (powers.ndim - 1,), True)
        none = do("eq", total, 0)
        logs = do("where", none, math.inf, do("add", top, do("log", total)))
        engine.copy(_tokens(logs, 0, last - first), _tokens(_column(lse), first, last))
        kept = _dropped(engine, powers, settings, q, k, first, last)
        product = engine.matmul(kept, _tokens(v, 0, seen))
        engine.copy(do("div", product, do("where", none, 1, total)), _tokens(y, first, last))
    return y, lse


def attention_grad(
    engine: Engine, dy: Tensor, state: AttentionState, settings: AttentionSettings, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """dv = p' dy; ds = p * (dy v' - sum(dy * y)); dq = ds k and dk = ds' q, scaled; the mask's is ds, summed."""
    q, k, v, mask, y, lse = state
    do = engine.elementwise
    dq, dk, dv = (filled(engine, x.shape, 0, x.dtype, x.memory_order()) for x in (q, k, v))
    dmask = filled(engine, mask.shape, 0, mask.dtype) if mask is not None and needs[3] else None

    def add(part: Tensor, out: Tensor) -> None:
        do("add", out, part, out=out)

    for first, last, seen in _blocks(q, k, settings):
        rows = _tokens(q, first, last), _tokens(dy, first, last), _tokens(y, first, last)
        queries, grads, results = rows
        keys, values = _tokens(k, 0, seen), _tokens(v, 0, seen)
        scores = _scores(engine, q, k, mask, settings, first, last, seen)
        p = do("exp", do("sub", scores, _tokens(_column(lse), first, last)))
        add(engine.matmul(transposed(_dropped(engine, p, settings, q, k, first, last)), grads), _tokens(dv, 0, seen))
        dp = _dropped(engine, engine.matmul(grads, transposed(values)), settings, q, k, first, last)
        mean = engine.reduce("sum", do("mul", grads, results), (grads.ndim - 1,), True)
        ds = do("mul", p, do("sub", dp, mean))
        if dmask is not None:
            part = _mask_block(dmask, first, last, seen)
            axes = tuple(axis for axis in range(ds.ndim) if part.shape[axis] == 1 and ds.shape[axis] != 1)
            add(engine.reduce("sum", ds, axes, True) if axes else ds, part)
        scaled = do("mul", ds, settings.scale)
        add(engine.matmul(scaled, keys), _tokens(dq, first, last))
        add(engine.matmul(transposed(scaled), queries), _tokens(dk, 0, seen))
    return tuple([part if needed else None for part, needed in zip((dq, dk, dv, dmask), needs, strict=True)])


def _blocks(q: Tensor, k: Tensor, settings: AttentionSettings) -> Iterator[tuple[int, int, int]]:
    """The first and the last query of each block, and how many keys one of them may see."""
    queries, keys = q.shape[-2], k.shape[-2]
    rows = max(1, min(queries, BLOCK // (math.prod(q.shape[:-2]) * keys)))
    for first in range(0, queries, rows):
        last = min(first + rows, queries)
        yield first, last, min(keys, last) if settings.causal else keys


def _scores(
    engine: Engine,
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    settings: AttentionSettings,
    first: int,
    last: int,
    seen: int,
) -> Tensor:
    """A block of scores, scaled and with the mask; minus infinity where a query may not see a key."""
    do = engine.elementwise
    product = engine.matmul(_tokens(q, first, last), transposed(_tokens(k, 0, seen)))
    scores = do("mul", product, settings.scale, out=product)
    if settings.causal:
        visible = engine.from_numpy(np.arange(first, last)[:, None] >= np.arange(seen))
        return do("where", visible, scores, -math.inf)
    if mask is None:
        return scores
    part = _mask_block(mask, first, last, seen)
    if is_bool(part.dtype):
        return do("where", part, scores, -math.inf)
    return do("where", do("eq", part, -math.inf), -math.inf, do("add", scores, part))


def _mask_block(mask: Tensor, first: int, last: int, seen: int) -> Tensor:
    """What a mask has for a block; axes of one entry stay so."""
    if mask.shape[-2] != 1:
        mask = _tokens(mask, first, last)
    width = 1 if mask.shape[-1] == 1 else seen
    return mask.strided(mask.offset, (*mask.shape[:-1], width), mask.strides)


def _tokens(x: Tensor, first: int, last: int) -> Tensor:
    """A view of some tokens."""
    shape = (*x.shape[:-2], last - first, x.shape[-1])
    return x.strided(x.offset + first * x.strides[-2], shape, x.strides)


def _column(x: Tensor) -> Tensor:
    """A view with one more axis, of length 1."""
    return x.strided(x.offset, (*x.shape, 1), (*x.strides, 1))


def _dropped(
    engine: Engine, p: Tensor, settings: AttentionSettings, q: Tensor, k: Tensor, first: int, last: int
) -> Tensor:
    """A block's probabilities, or their gradients, after dropout; the random numbers are made on the host."""
    if settings.dropout == 0:
        return p
    queries, keys = q.shape[-2], k.shape[-2]
    kept = np.empty((math.prod(p.shape[:-2]), *p.shape[-2:]), bool)
    for head in range(len(kept)):
        kept[head] = _kept(settings, (head * queries + first) * keys, (last - first, keys))[:, : p.shape[-1]]
    mask = engine.from_numpy(kept.reshape(p.shape))
    scale = 1 / (1 - settings.dropout) if settings.dropout < 1 else 0.0
    return engine.elementwise("where", mask, engine.elementwise("mul", p, scale), 0)


def _kept(settings: AttentionSettings, start: int, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Whether probabilities from a place in the sequence of all heads' scores on are kept; 4 share a counter."""
    skipped, count = start % 4, math.prod(shape)
    drawn = random.uniforms(settings.seed, settings.offset + start // 4, skipped + count)
    return drawn[skipped:].reshape(shape) >= settings.dropout
