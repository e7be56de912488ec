"""Attention and its gradients by blocks of queries: no more of the scores is in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import random
from alpha.composed.arrays import filled, numbers, transposed
from alpha.dtypes import is_bool
from alpha.expressions import attention as programs
from alpha.expressions import dropout
from alpha.random import WORDS

if TYPE_CHECKING:
    from alpha.arguments import Shape
    from alpha.engine import Engine
    from alpha.expressions.program import Program
    from alpha.records import AttentionSettings, AttentionState
    from alpha.tensor import Tensor

BLOCK = 1 << 22
"""Scores of a block, about; at least those of one query of every head."""


def attention(
    engine: Engine, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, settings: AttentionSettings
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithms of the softmax's sums: +infinity of a query that sees no key."""
    do = partial(_pointwise, engine)
    y = engine.empty((*q.shape[:-1], v.shape[-1]), q.dtype, q.memory_order())
    lse = engine.empty(q.shape[:-1], q.dtype)
    scaled = engine.elementwise("mul", q, settings.scale)
    for first, last, seen in _blocks(q, k, settings):
        scores = _scores(engine, scaled, k, mask, settings, first, last, seen)
        top = engine.reduce("max", scores, (scores.ndim - 1,), True)
        powers = do(programs.POWER, scores, top)
        total = engine.reduce("sum", powers, (powers.ndim - 1,), True)
        do(programs.LOGARITHM, total, top, out=_tokens(_column(lse), first, last))
        kept = powers
        if settings.dropout:
            kept = engine.dropped_scores(powers, settings, (*q.shape[:-1], k.shape[-2]), first, False)
        do(programs.MEAN, engine.matmul(kept, _tokens(v, 0, seen)), total, out=_tokens(y, first, last))
    return y, lse


def attention_grad(
    engine: Engine, dy: Tensor, state: AttentionState, settings: AttentionSettings, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """dv = p' dy; ds = p * (dy v' - sum(dy * y)); dq = ds k and dk = ds' q, scaled; the mask's is ds, summed."""
    q, k, v, mask, y, lse = state
    do, blocks = partial(_pointwise, engine), list(_blocks(q, k, settings))
    scaled = engine.elementwise("mul", q, settings.scale)
    sums = _Sums(engine, len(blocks) == 1 and blocks[0][2] == k.shape[-2])
    dq, dk, dv = (sums.begun(x) for x in (q, k, v))
    dmask = sums.begun(mask) if mask is not None and needs[3] else None

    def dropped(block: Tensor, first: int) -> Tensor:
        if not settings.dropout:
            return block
        return engine.dropped_scores(block, settings, (*q.shape[:-1], k.shape[-2]), first, True)

    for first, last, seen in blocks:
        queries, grads, results = (_tokens(x, first, last) for x in (scaled, dy, y))
        keys, values = _tokens(k, 0, seen), _tokens(v, 0, seen)
        scores = _scores(engine, scaled, k, mask, settings, first, last, seen)
        p = do(programs.PROBABILITY, scores, _tokens(_column(lse), first, last))
        sums.add(engine.matmul(transposed(dropped(p, first)), grads), _tokens(dv, 0, seen))
        dp = dropped(engine.matmul(grads, transposed(values)), first)
        mean = engine.reduce("sum", engine.elementwise("mul", grads, results), (grads.ndim - 1,), True)
        ds = do(programs.GRADIENT, p, dp, mean)
        if dmask is not None:
            part = _mask_block(dmask, first, last, seen)
            axes = tuple(axis for axis in range(ds.ndim) if part.shape[axis] == 1 and ds.shape[axis] != 1)
            sums.add(engine.reduce("sum", ds, axes, True) if axes else ds, part)
        sums.add(engine.matmul(ds, keys), _tokens(dq, first, last))
        sums.add(engine.matmul(transposed(ds), queries), _tokens(dk, 0, seen))
    if needs[0]:
        engine.elementwise("mul", dq, settings.scale, out=dq)
    return tuple([part if needed else None for part, needed in zip((dq, dk, dv, dmask), needs, strict=True)])


class _Sums:
    """Gradients that blocks of queries add to; those of a single block that sees all keys are they, as they are."""

    def __init__(self, engine: Engine, is_single: bool) -> None:
        self._engine, self._is_single = engine, is_single

    def begun(self, x: Tensor) -> Tensor:
        """That of a tensor, in its memory order."""
        if self._is_single:
            return self._engine.empty(x.shape, x.dtype, x.memory_order())
        return filled(self._engine, x.shape, 0, x.dtype, x.memory_order())

    def add(self, part: Tensor, out: Tensor) -> None:
        """Adds what a block gives."""
        if self._is_single:
            self._engine.copy(part, out)
        else:
            self._engine.elementwise("add", out, part, out=out)


def _pointwise(engine: Engine, program: Program, *tensors: Tensor, out: Tensor | None = None) -> Tensor:
    return engine.pointwise("attention", program, tensors, (), out)[0]


def _blocks(q: Tensor, k: Tensor, settings: AttentionSettings) -> Iterator[tuple[int, int, int]]:
    """The first and the last query of each block, and how many keys one of them may see."""
    queries, keys = q.shape[-2], k.shape[-2]
    rows = max(1, BLOCK // (math.prod(q.shape[:-2]) * keys))
    # So many rows of scores are whole counters of random words, which dropout draws at once.
    rows = min(queries, rows if rows < WORDS else rows // WORDS * WORDS)
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
    """A block of scores of scaled queries, with the mask; minus infinity where a query may not see a key."""
    scores = engine.matmul(_tokens(q, first, last), transposed(_tokens(k, 0, seen)))
    if mask is None and not settings.causal:
        return scores
    part = _visible(engine, first, last, seen) if mask is None else _mask_block(mask, first, last, seen)
    if is_bool(part.dtype):
        return engine.elementwise("where", part, scores, -math.inf)
    return _pointwise(engine, programs.ADDED, scores, part)


def _visible(engine: Engine, first: int, last: int, seen: int) -> Tensor:
    """Whether some queries see some keys of those at their own place and before."""
    places = numbers(engine, 1 << (max(last, seen) - 1).bit_length())  # few lengths: engines may keep a table of each
    queries, keys = places.strided(first, (last - first, 1), (1, 1)), places.strided(0, (seen,), (1,))
    return engine.elementwise("ge", queries, keys)


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


def dropped_scores(
    engine: Engine, block: Tensor, settings: AttentionSettings, scores: Shape, first: int, is_again: bool
) -> Tensor:
    """The random numbers are made on the host, which is the same again."""
    *heads, queries, keys = scores
    kept = np.empty((math.prod(heads), *block.shape[-2:]), bool)
    for head in range(len(kept)):
        place = (head * queries + first) * keys
        kept[head] = _kept(settings, place, (block.shape[-2], keys))[:, : block.shape[-1]]
    mask = engine.from_numpy(kept.reshape(block.shape))
    return engine.pointwise("dropout", dropout.KEPT, (block, mask), (dropout.scale(settings.dropout),))[0]


def _kept(settings: AttentionSettings, start: int, shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Whether probabilities from a place in the sequence of all heads' scores on are kept; some share a counter."""
    skipped, count = start % WORDS, math.prod(shape)
    drawn = random.uniforms(settings.seed, settings.offset + start // WORDS, skipped + count)
    return drawn[skipped:].reshape(shape) >= settings.dropout
