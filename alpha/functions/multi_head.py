"""Several heads of attention behind projections: what MultiheadAttention computes, and PyTorch's function of it."""

from __future__ import annotations

import math
from typing import NamedTuple

from alpha.arguments import flag, number, whole
from alpha.dtypes import is_bool, is_float
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.functions.activation import softmax
from alpha.functions.attention import scaled_dot_product_attention
from alpha.functions.comparison import logical_not, logical_or, where
from alpha.functions.creation import zeros
from alpha.functions.dropouts import dropout
from alpha.functions.joining import concat
from alpha.functions.linalg import linear, matmul
from alpha.functions.operands import check_tensor
from alpha.functions.reduction import mean
from alpha.functions.shape import expand, permute, reshape, squeeze, transpose, unsqueeze
from alpha.functions.splitting import chunk, split
from alpha.tensor import Tensor

__all__ = ["multi_head_attention_forward"]

Three = tuple[Tensor, Tensor, Tensor]


class Heads(NamedTuple):
    """Heads of attention and the weights of their projections.

    Attributes:
        name: who asks, for errors.
        embed_dim: length of queries and results.
        num_heads: how many heads share it.
        batch_first: whether sequences are (batch, length, numbers) instead of (length, batch, numbers).
        weight: (3 * embed_dim, embed_dim), of queries, keys and values; None where ``separate`` are theirs.
        separate: (embed_dim, their length) of each.
        bias: (3 * embed_dim,).
        bias_k, bias_v: (1, 1, embed_dim), a key and a value that are added to those of every sequence.
        add_zero_attn: whether a key and a value of zeros are.
        static_k, static_v: (batch * num_heads, keys, embed_dim / num_heads), in the place of projected ones.
    """

    name: str
    embed_dim: int
    num_heads: int
    batch_first: bool
    weight: Tensor | None
    separate: tuple[Tensor | None, Tensor | None, Tensor | None]
    bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    static_k: Tensor | None = None
    static_v: Tensor | None = None

    @property
    def head_dim(self) -> int:
        """Length of the queries of one head."""
        return self.embed_dim // self.num_heads


class Seen(NamedTuple):
    """Which keys are seen, and what else a call asks for: the arguments of ``MultiheadAttention.forward``."""

    key_padding_mask: Tensor | None
    need_weights: bool
    attn_mask: Tensor | None
    average_attn_weights: bool
    is_causal: bool


def attended(
    heads: Heads, query: Tensor, key: Tensor, value: Tensor, seen: Seen, dropout_p: float
) -> tuple[Tensor, Tensor | None]:
    """The heads' results side by side, shaped as the query, before they are projected; and the weights if needed."""
    is_single, axis = query.ndim == 2, 0 if heads.batch_first else 1
    x, k, v = query, key, value
    if is_single:
        batches = {id(one): unsqueeze(one, axis) for one in (x, k, v)}  # what is one tensor stays one
        x, k, v = (batches[id(one)] for one in (x, k, v))
    _check(heads, x, k, v)
    is_causal = flag(heads.name, "is_causal", seen.is_causal)
    if is_causal and seen.attn_mask is None:
        raise ArgumentError(f"[{heads.name}] expected attn_mask beside is_causal=True, which tells of it, got none")
    q, k, v = _projected(heads, x, k, v)
    batch, keys = q.shape[0], k.shape[-2] - (heads.bias_k is not None) - heads.add_zero_attn
    padding = _padding(heads.name, seen.key_padding_mask, batch, keys, is_single)
    mask = _mask(heads, seen.attn_mask, batch, q.shape[-2], keys)
    weights = None
    if flag(heads.name, "need_weights", seen.need_weights):
        y, weights = _weighted(q, k, v, _merged(mask, padding, q, k.shape[-2]), dropout_p)
        if flag(heads.name, "average_attn_weights", seen.average_attn_weights):
            weights = mean(weights, 1)
        weights = squeeze(weights, 0) if is_single else weights
    elif is_causal and padding is None and k.shape[-2] == keys:
        y = scaled_dot_product_attention(q, k, v, None, dropout_p, is_causal=True)
    else:
        merged = _merged(mask, padding, q, k.shape[-2])
        allowed = logical_not(merged) if merged is not None and is_bool(merged.dtype) else merged
        y = scaled_dot_product_attention(q, k, v, allowed, dropout_p)
    parts = permute(y, (0, 2, 1, 3) if heads.batch_first else (2, 0, 1, 3))
    joined = reshape(parts, (*parts.shape[:2], heads.embed_dim))
    return joined, weights


def _check(heads: Heads, query: Tensor, key: Tensor, value: Tensor) -> None:
    """ShapeError unless the tensors fit the weights and each other."""
    size, separate = heads.embed_dim, heads.separate
    sizes = [size if one is None or heads.weight is not None else one.shape[-1] for one in separate]
    tensors, batch = (query, key, value), 0 if heads.batch_first else 1
    fits = all(x.ndim == 3 and x.shape[2] == size for x, size in zip(tensors, sizes, strict=True))
    if not fits or key.shape[:2] != value.shape[:2] or query.shape[batch] != key.shape[batch]:
        order = "(batch, length, {})" if heads.batch_first else "(length, batch, {})"
        wanted = ", ".join(order.format(size) for size in sizes)
        got = ", ".join(str(x.shape) for x in tensors)
        raise ShapeError(f"[{heads.name}] expected query, key and value {wanted}, or all without a batch, got {got}")


def _projected(heads: Heads, query: Tensor, key: Tensor, value: Tensor) -> Three:
    """Queries, keys and values (batch, heads, length, numbers)."""
    weight, bias, size = heads.weight, heads.bias, heads.embed_dim
    if weight is not None and query is key and key is value:
        q, k, v = chunk(linear(query, weight, bias), 3, -1)
    elif weight is not None and key is value:
        q_weight, kv_weight = split(weight, [size, 2 * size])
        q_bias, kv_bias = (None, None) if bias is None else split(bias, [size, 2 * size])
        q = linear(query, q_weight, q_bias)
        k, v = chunk(linear(key, kv_weight, kv_bias), 2, -1)
    else:
        weights = heads.separate if weight is None else chunk(weight, 3)
        biases = (None, None, None) if bias is None else chunk(bias, 3)
        q, k, v = (
            linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True) if w is not None
        )
    axis = 1 if heads.batch_first else 0
    if heads.bias_k is not None and heads.bias_v is not None:
        shape = (k.shape[0], 1, size) if heads.batch_first else (1, k.shape[1], size)
        k = concat([k, expand(heads.bias_k, shape)], axis)
        v = concat([v, expand(heads.bias_v, shape)], axis)
    q, k, v = (_of_heads(heads, one) for one in (q, k, v))
    k = k if heads.static_k is None else _static(heads, "static_k", heads.static_k, q.shape[0])
    v = v if heads.static_v is None else _static(heads, "static_v", heads.static_v, q.shape[0])
    if heads.add_zero_attn:
        none = zeros((q.shape[0], heads.num_heads, 1, heads.head_dim), dtype=k.dtype, engine=k.engine)
        k, v = concat([k, none], 2), concat([v, none], 2)
    return q, k, v


def _of_heads(heads: Heads, x: Tensor) -> Tensor:
    """A view (batch, heads, length, numbers)."""
    parts = reshape(x, (*x.shape[:2], heads.num_heads, heads.head_dim))
    return permute(parts, (0, 2, 1, 3) if heads.batch_first else (1, 2, 0, 3))


def _static(heads: Heads, name: str, given: Tensor, batch: int) -> Tensor:
    """Keys or values that were given as they are."""
    check_tensor(heads.name, given)
    rows = batch * heads.num_heads
    if given.ndim != 3 or given.shape[0] != rows or given.shape[2] != heads.head_dim:
        raise ShapeError(f"[{heads.name}] expected {name} ({rows}, keys, {heads.head_dim}), got {given.shape}")
    return reshape(given, (batch, heads.num_heads, *given.shape[1:]))


# -- masks -------------------------------------------------------------------------------------------------------


def _padding(name: str, mask: Tensor | None, batch: int, keys: int, is_single: bool) -> Tensor | None:
    """The padding's mask as (batch, 1, 1, keys)."""
    if mask is None:
        return None
    _check_mask(name, "key_padding_mask", mask)
    if mask.shape != ((keys,) if is_single else (batch, keys)):
        wanted = f"({keys},)" if is_single else f"({batch}, {keys})"
        raise ShapeError(f"[{name}] expected key_padding_mask {wanted}, got {mask.shape}")
    return reshape(mask, (batch, 1, 1, keys))


def _mask(heads: Heads, mask: Tensor | None, batch: int, length: int, keys: int) -> Tensor | None:
    """The mask as (batch or 1, heads or 1, length, keys)."""
    if mask is None:
        return None
    _check_mask(heads.name, "attn_mask", mask)
    several = batch * heads.num_heads, length, keys
    if mask.shape not in ((length, keys), several):
        raise ShapeError(f"[{heads.name}] expected attn_mask {(length, keys)} or {several}, got {mask.shape}")
    shape = (1, 1) if mask.ndim == 2 else (batch, heads.num_heads)
    return reshape(mask, (*shape, length, keys))


def _weighted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float) -> tuple[Tensor, Tensor]:
    """The result and the weights, all of which are in memory."""
    scores = matmul(q * (1 / math.sqrt(q.shape[-1])), transpose(k, -2, -1))
    if mask is not None:
        scores = where(mask, -math.inf, scores) if is_bool(mask.dtype) else scores + mask
    weights = softmax(scores, -1)
    weights = dropout(weights, dropout_p) if dropout_p else weights
    return matmul(weights, v), weights


def _check_mask(function: str, name: str, mask: Tensor) -> None:
    check_tensor(function, mask)
    if not is_bool(mask.dtype) and not is_float(mask.dtype):
        raise DtypeError(
            f"[{function}] expected {name} of bool or floats, got {mask.dtype}: compare it, as in mask != 0"
        )


def _merged(mask: Tensor | None, padding: Tensor | None, q: Tensor, keys: int) -> Tensor | None:
    """Both masks in one: bools, True where a key is not seen, or floats; keys that were added are seen."""
    given = [one for one in (mask, padding) if one is not None]
    if not given:
        return None
    if not all(is_bool(one.dtype) for one in given):
        given = [_added(one, q) for one in given]
    if given[0].shape[-1] != keys:
        more = keys - given[0].shape[-1]
        given = [concat([one, zeros((*one.shape[:-1], more), dtype=one.dtype, engine=q.engine)], -1) for one in given]
    if len(given) == 1:
        return given[0]
    return logical_or(*given) if is_bool(given[0].dtype) else given[0] + given[1]


def _added(mask: Tensor, q: Tensor) -> Tensor:
    """A mask as floats to be added to the scores."""
    if not is_bool(mask.dtype):
        return mask.to(q.dtype)
    return where(mask, -math.inf, zeros(mask.shape, dtype=q.dtype, engine=q.engine))


# -- PyTorch's function --------------------------------------------------------------------------------------------


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What ``nn.MultiheadAttention`` computes, of weights that are given. Vaswani et al., arXiv 1706.03762.

    Args:
        query, key, value: (length, batch, numbers), or (length, numbers).
        embed_dim_to_check: the query's numbers.
        num_heads: how many heads share them.
        in_proj_weight, in_proj_bias: (3 E, E) and (3 E,), E the query's numbers.
        bias_k, bias_v: (1, 1, E), a key and a value that are added to those of every sequence.
        add_zero_attn: whether a key and a value of zeros are.
        dropout_p: probability of dropout of the attention's weights, in training.
        out_proj_weight, out_proj_bias: (E, E) and (E,).
        training: whether weights are dropped.
        key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal: as for the layer.
        use_separate_proj_weight: whether ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight`` (E, their numbers)
            stand in the place of ``in_proj_weight``.
        static_k, static_v: (batch * num_heads, keys, E / num_heads), in the place of projected keys and values.

    Returns:
        The result, shaped as the query, and the weights (batch, length, keys) if they are needed.
    """
    name = "multi_head_attention_forward"
    check_tensor(name, query, key, value, out_proj_weight)
    size, count = whole(name, "embed_dim_to_check", embed_dim_to_check, 1), whole(name, "num_heads", num_heads, 1)
    if size % count:
        raise ArgumentError(f"[{name}] expected num_heads that divides the query's {size} numbers, got {num_heads}")
    separate = q_proj_weight, k_proj_weight, v_proj_weight
    if not flag(name, "use_separate_proj_weight", use_separate_proj_weight):
        _check_weights(name, size, ("in_proj_weight",), (in_proj_weight,), 3 * size)
        separate = None, None, None
    else:
        _check_weights(name, size, ("q_proj_weight", "k_proj_weight", "v_proj_weight"), separate, size)
        in_proj_weight = None
    if (bias_k is None) != (bias_v is None):
        raise ArgumentError(f"[{name}] expected bias_k and bias_v, or neither, got one of them")
    if bias_k is not None and (static_k is not None or static_v is not None):
        raise ArgumentError(f"[{name}] expected bias_k or static keys and values, got both")
    share = number(name, "dropout_p", dropout_p) if flag(name, "training", training) else 0.0
    add_zero_attn = flag(name, "add_zero_attn", add_zero_attn)
    weights = in_proj_weight, separate, in_proj_bias, bias_k, bias_v, add_zero_attn, static_k, static_v
    seen = Seen(key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
    y, attention = attended(Heads(name, size, count, False, *weights), query, key, value, seen, share)
    y = linear(y, out_proj_weight, out_proj_bias)
    return squeeze(y, 1) if query.ndim == 2 else y, attention


def _check_weights(name: str, size: int, names: tuple[str, ...], weights: tuple[Tensor | None, ...], rows: int) -> None:
    """ShapeError unless the projections' weights have so many rows; the query's have its numbers too."""
    for place, (title, weight) in enumerate(zip(names, weights, strict=True)):
        check_tensor(name, weight)
        if weight is None:
            continue
        columns = weight.shape[-1] if place else size
        if weight.shape != (rows, columns):
            raise ShapeError(f"[{name}] expected {title} ({rows}, {columns}), got {weight.shape}")
