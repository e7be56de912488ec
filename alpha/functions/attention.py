"""Scaled dot-product attention."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from alpha import random
from alpha.arguments import Shape, flag, number
from alpha.autograd import Function
from alpha.autograd.composing import by_formula
from alpha.dtypes import is_bool
from alpha.errors import ArgumentError, DtypeError, GraphError, ShapeError, described
from alpha.functions import creation
from alpha.functions.autocasting import lowered
from alpha.functions.elementwise import where
from alpha.functions.linalg import matmul
from alpha.functions.nothing import nothing
from alpha.functions.operands import broadcast_view, call, check_float, check_tensor, sum_to
from alpha.functions.shape import reshape
from alpha.records import AttentionSettings, AttentionState
from alpha.tensor import Tensor

__all__ = ["scaled_dot_product_attention"]

_NAME = "scaled_dot_product_attention"


class Attention(Function):
    """softmax(scale * q k' + mask) v. The scores are made by blocks, and again in backward: none are kept."""

    fresh = True

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, causal: bool, p: float
    ) -> Tensor:
        q, k, v = _with_batch(query, key, value)
        drawn = random.reserve(math.prod(q.shape[:-1]) * k.shape[-2]) if p else (0, 0)
        self.settings = AttentionSettings(scale, causal, p, *drawn)
        y, lse = query.engine.attention(q, k, v, mask, self.settings)
        self.save(query, key, value, mask, y, lse)
        return y

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, y, lse = self.saved
        q, k, v = _with_batch(query, key, value)
        found = grad.engine.attention_grad(grad, AttentionState(q, k, v, mask, y, lse), self.settings, self.needs[:4])
        given = query, key, value, mask
        return tuple([None if part is None else sum_to(part, x.shape) for part, x in zip(found, given, strict=True)])

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, *_ = self.saved
        settings = self.settings
        if settings.dropout:
            raise GraphError(
                f"[{_NAME}] expected dropout_p of 0 where gradients of gradients are asked for, got another: they have "
                "no formula here"
            )

        def formula(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
            scores = matmul(query, key.transpose(-1, -2)) * settings.scale
            if settings.causal:
                rows, columns = [creation.arange(n, engine=query.engine) for n in scores.shape[-2:]]
                mask = columns <= rows.unsqueeze(1)
            if mask is not None:
                scores = where(mask, scores, -math.inf) if is_bool(mask.dtype) else scores + mask
            seen = (scores > -math.inf).any(-1, True)
            return matmul(where(seen, where(seen, scores, 0.0).softmax(-1), 0.0), value)

        return by_formula(formula, (query, key, value, mask), grad)


def _with_batch(*tensors: Tensor) -> list[Tensor]:
    """Views with the same axes of the batch."""
    batch = _batch(*[x.shape for x in tensors])
    return [x if x.shape[:-2] == batch else broadcast_view(x, (*batch, *x.shape[-2:])) for x in tensors]


@lowered
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query @ key.T + attn_mask) @ value, in blocks: the N x N matrix of scores is never in memory.

    Args:
        query: (..., L, E); axes before the last two, such as batch and heads, broadcast.
        key: (..., S, E).
        value: (..., S, Ev); the result is (..., L, Ev), in memory ordered as the query.
        attn_mask: broadcasts to (..., L, S). Bools: True where a query sees a key. Floats: added to the scores. A pair
            that is masked, by False or minus infinity, has the probability 0 whatever its score is; a query that
            sees no key has the result 0.
        dropout_p: each probability is 0 with this probability, else divided by 1 - dropout_p; in evaluation too: pass 0
            there. Element i of the scores in row-major order is kept when ``random.uniforms`` gives at least dropout_p
            at place i: the same on every engine, and in backward.
        is_causal: query i sees keys 0..i alone, also where L and S differ; not with a mask.
        scale: by default 1 / sqrt(E).
        enable_gqa: whether query (..., H, L, E) may have more heads than key and value, whose heads neighbouring ones
            share.

    Backward keeps the arguments, the result, and a number per query. Softmax, sums and results are of the dtype of the
    arguments; the softmax's sums are added in float64 by the CPU engine. Values that are not finite may reach queries
    that see them with the probability 0.

    Sources: FlashAttention, Dao et al., arXiv 2205.14135 and 2307.08691; the running softmax, Milakov and Gimelshein,
    arXiv 1805.02867; grouped queries, Ainslie et al., arXiv 2305.13245.
    """
    causal, grouped = flag(_NAME, "is_causal", is_causal), flag(_NAME, "enable_gqa", enable_gqa)
    _check(query, key, value, attn_mask)
    if attn_mask is not None and causal:
        raise ArgumentError(
            f"[{_NAME}] expected attn_mask or is_causal=True, got both: put the causal part into the mask"
        )
    p = number(_NAME, "dropout_p", dropout_p)
    if not 0 <= p <= 1:
        raise ArgumentError(f"[{_NAME}] expected a probability dropout_p in 0..1, got {described(dropout_p)}")
    factor = 1 / math.sqrt(max(1, query.shape[-1])) if scale is None else number(_NAME, "scale", scale)
    groups = _groups(query, key, value) if grouped else 1
    heads = query.shape
    if groups > 1:  # an axis of shared heads, and one of those that share, along which key and value broadcast
        query = reshape(query, (*heads[:-3], heads[-3] // groups, groups, *heads[-2:]))
        key, value = (reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])) for x in (key, value))
    batch = _batch(query.shape, key.shape, value.shape)
    shape = (*batch, query.shape[-2], value.shape[-1])
    result = shape if groups == 1 else (*shape[:-4], heads[-3], *shape[-2:])
    mask = None
    if attn_mask is not None:
        mask = _mask(attn_mask, (*result[:-2], heads[-2], key.shape[-2]))
        if groups > 1:
            parts = (1, 1) if mask.shape[-3] == 1 else (heads[-3] // groups, groups)
            mask = reshape(mask, (*mask.shape[:-3], *parts, *mask.shape[-2:]))
    if 0 in shape or not key.shape[-2]:
        return nothing(result, query, key, value, mask if mask is not None and not is_bool(mask.dtype) else None)
    out = call(Attention, query, key, value, mask, factor, causal, p)
    return out if groups == 1 else reshape(out, result)


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    """An error unless dtypes, engines and the last two axes agree."""
    check_float(_NAME, query, key, value)
    given = [query, key, value]
    if mask is not None:
        check_tensor(_NAME, mask)
        given.append(mask)
    query.engine.check_owner(_NAME, *given)
    if query.dtype != key.dtype or query.dtype != value.dtype:
        got = ", ".join(str(x.dtype) for x in (query, key, value))
        raise DtypeError(f"[{_NAME}] expected query, key and value of one dtype, got {got}: cast them")
    if mask is not None and not is_bool(mask.dtype) and mask.dtype != query.dtype:
        raise DtypeError(f"[{_NAME}] expected attn_mask of bool or {query.dtype}, got {mask.dtype}: cast it")
    _check_shapes(query.shape, key.shape, value.shape)


@lru_cache(maxsize=1024)
def _check_shapes(query: Shape, key: Shape, value: Shape) -> None:
    """ShapeError unless the last two axes agree."""
    shapes = f"query: {query}, key: {key} and value: {value}"
    if min(len(query), len(key), len(value)) < 2:
        raise ShapeError(f"[{_NAME}] expected two axes or more, tokens and numbers last, got {shapes}")
    if query[-1] != key[-1] or key[-2] != value[-2]:
        raise ShapeError(f"[{_NAME}] expected query (..., L, E), key (..., S, E) and value (..., S, Ev), got {shapes}")


def _groups(query: Tensor, key: Tensor, value: Tensor) -> int:
    """How many neighbouring heads of the query share a head of key and value."""
    if min(query.ndim, key.ndim, value.ndim) >= 3:
        heads, shared, others = (x.shape[-3] for x in (query, key, value))
        if shared == others and shared and heads % shared == 0:
            return heads // shared
    raise ShapeError(
        f"[{_NAME}] expected heads of key and value that divide those of the query, got query: {query.shape}, "
        f"key: {key.shape} and value: {value.shape}"
    )


@lru_cache(maxsize=1024)
def _batch(query: Shape, key: Shape, value: Shape) -> Shape:
    """The axes before the last two that these shapes broadcast to."""
    try:
        return np.broadcast_shapes(query[:-2], key[:-2], value[:-2])
    except ValueError:
        raise ShapeError(
            f"[{_NAME}] expected axes before the last two that broadcast, got query: {query}, key: {key} and value: "
            f"{value}"
        ) from None


def _mask(mask: Tensor, shape: Shape) -> Tensor:
    """The mask with as many axes as the scores; ShapeError unless it broadcasts to them."""
    lengths = (1,) * (len(shape) - mask.ndim) + mask.shape
    if len(lengths) != len(shape) or any(n not in (1, wanted) for n, wanted in zip(lengths, shape, strict=True)):
        raise ShapeError(f"[{_NAME}] expected attn_mask that broadcasts to the scores {shape}, got {mask.shape}")
    return mask if mask.shape == lengths else reshape(mask, lengths)
