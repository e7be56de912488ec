"""MultiheadAttention."""

from __future__ import annotations

import math

import alpha
from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import is_bool, is_float
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.functions.operands import check_tensor
from alpha.nn import init
from alpha.nn.arguments import empty_parameter, positive, probability
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter

_NAME = "MultiheadAttention"


class MultiheadAttention(Module):
    """Several heads of attention side by side, between projections. Vaswani et al., arXiv 1706.03762.

    ``in_proj_weight`` (3 * embed_dim, embed_dim) projects queries, keys and values; where keys or values have another
    length it is ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``. ``out_proj`` is a Linear.

    Args:
        embed_dim: length of queries and results.
        num_heads: how many heads share it.
        dropout: probability of dropout of the attention's weights, in training.
        bias: whether the projections have biases.
        add_bias_kv: whether one learned key and value are added to those of every sequence.
        add_zero_attn: whether one key and value of zeros are.
        kdim, vdim: lengths of keys and values; by default ``embed_dim``.
        batch_first: whether sequences are (batch, length, numbers) instead of (length, batch, numbers).
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        self.embed_dim = size = positive(embed_dim, "embed_dim", _NAME)
        self.num_heads = positive(num_heads, "num_heads", _NAME)
        self.kdim = size if kdim is None else positive(kdim, "kdim", _NAME)
        self.vdim = size if vdim is None else positive(vdim, "vdim", _NAME)
        self.dropout = probability(dropout, "dropout", _NAME)
        self.batch_first = flag(_NAME, "batch_first", batch_first)
        self.add_zero_attn = flag(_NAME, "add_zero_attn", add_zero_attn)
        self.head_dim = size // self.num_heads
        if self.head_dim * self.num_heads != size:
            raise ArgumentError(f"[{_NAME}] expected num_heads that divides embed_dim {size}, got {num_heads}")
        is_one = self.kdim == self.vdim == size
        self.q_proj_weight = None if is_one else empty_parameter(size, size)
        self.k_proj_weight = None if is_one else empty_parameter(size, self.kdim)
        self.v_proj_weight = None if is_one else empty_parameter(size, self.vdim)
        self.in_proj_weight = empty_parameter(3 * size, size) if is_one else None
        bias = flag(_NAME, "bias", bias)
        self.in_proj_bias = empty_parameter(3 * size) if bias else None
        self.out_proj = Linear(size, size, bias)
        has_bias_kv = flag(_NAME, "add_bias_kv", add_bias_kv)
        self.bias_k = empty_parameter(1, 1, size) if has_bias_kv else None
        self.bias_v = empty_parameter(1, 1, size) if has_bias_kv else None
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draws the projections' weights xavier-uniform, ``bias_k`` and ``bias_v`` xavier-normal; biases are 0."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for one in (self.bias_k, self.bias_v):
            if one is not None:
                init.xavier_normal_(one)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, shaped as the query, and the attention's weights (batch, length, keys) if they are needed.

        Args:
            query: (length, batch, embed_dim), (batch, length, embed_dim) with ``batch_first``, or (length, embed_dim).
            key, value: alike, of lengths ``kdim`` and ``vdim``.
            key_padding_mask: (batch, keys), bools, True where a key is not seen, or floats to be added to the scores.
            need_weights: whether the weights are wanted; without them the scores are never in memory.
            attn_mask: (length, keys) or (batch * heads, length, keys), bools, True where a key is not seen, or floats.
            average_attn_weights: whether the weights are the mean over the heads; else (batch, heads, length, keys).
            is_causal: says that ``attn_mask`` is the causal one.
        """
        check_tensor(_NAME, query, key, value)
        is_single, axis = query.ndim == 2, 0 if self.batch_first else 1
        x, k, v = query, key, value
        if is_single:
            batches = {id(one): F.unsqueeze(one, axis) for one in (x, k, v)}  # what is one tensor stays one
            x, k, v = (batches[id(one)] for one in (x, k, v))
        self._check(x, k, v)
        is_causal = flag(_NAME, "is_causal", is_causal)
        if is_causal and attn_mask is None:
            raise ArgumentError(f"[{_NAME}] expected attn_mask beside is_causal=True, which tells of it, got none")
        q, k, v = self._projected(x, k, v)
        batch, keys = self._sizes(x)[0], k.shape[-2] - (self.bias_k is not None) - self.add_zero_attn
        padding = self._padding(key_padding_mask, batch, keys, is_single)
        mask = self._mask(attn_mask, batch, q.shape[-2], keys)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if flag(_NAME, "need_weights", need_weights):
            y, weights = self._weighted(q, k, v, _merged(mask, padding, q, k.shape[-2]), dropout)
            if flag(_NAME, "average_attn_weights", average_attn_weights):
                weights = weights.mean(1)
            weights = F.squeeze(weights, 0) if is_single else weights
        elif is_causal and padding is None and k.shape[-2] == keys:
            y = F.scaled_dot_product_attention(q, k, v, None, dropout, is_causal=True)
        else:
            merged = _merged(mask, padding, q, k.shape[-2])
            seen = F.logical_not(merged) if merged is not None and is_bool(merged.dtype) else merged
            y = F.scaled_dot_product_attention(q, k, v, seen, dropout)
        y = self.out_proj(self._joined(y))
        return F.squeeze(y, axis) if is_single else y, weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """ShapeError unless the tensors fit the layer and each other."""
        sizes = self.embed_dim, self.kdim, self.vdim
        tensors = query, key, value
        batch = 0 if self.batch_first else 1
        fits = all(x.ndim == 3 and x.shape[2] == size for x, size in zip(tensors, sizes, strict=True))
        if not fits or key.shape[:2] != value.shape[:2] or query.shape[batch] != key.shape[batch]:
            order = "(batch, length, {})" if self.batch_first else "(length, batch, {})"
            wanted = ", ".join(order.format(size) for size in sizes)
            got = ", ".join(str(x.shape) for x in tensors)
            raise ShapeError(f"[{_NAME}] expected query, key and value {wanted}, or all without a batch, got {got}")

    def _sizes(self, x: Tensor) -> tuple[int, int]:
        """The batch and the length of sequences."""
        return (x.shape[0], x.shape[1]) if self.batch_first else (x.shape[1], x.shape[0])

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (batch, heads, length, numbers)."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        if weight is not None and query is key and key is value:
            q, k, v = F.chunk(F.linear(query, weight, bias), 3, -1)
        elif weight is not None and key is value:
            size = self.embed_dim
            q_weight, kv_weight = F.split(weight, [size, 2 * size])
            q_bias, kv_bias = (None, None) if bias is None else F.split(bias, [size, 2 * size])
            q = F.linear(query, q_weight, q_bias)
            k, v = F.chunk(F.linear(key, kv_weight, kv_bias), 2, -1)
        else:
            separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = separate if weight is None else F.chunk(weight, 3)
            biases = (None, None, None) if bias is None else F.chunk(bias, 3)
            q, k, v = (
                F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True) if w is not None
            )
        axis = 1 if self.batch_first else 0
        if self.bias_k is not None and self.bias_v is not None:
            shape = (k.shape[0], 1, self.embed_dim) if self.batch_first else (1, k.shape[1], self.embed_dim)
            k = F.concat([k, F.expand(self.bias_k, shape)], axis)
            v = F.concat([v, F.expand(self.bias_v, shape)], axis)
        if self.add_zero_attn:
            shape = (k.shape[0], 1, self.embed_dim) if self.batch_first else (1, k.shape[1], self.embed_dim)
            zeros = alpha.zeros(shape, dtype=k.dtype, engine=k.engine)
            k, v = F.concat([k, zeros], axis), F.concat([v, zeros], axis)
        return self._heads(q), self._heads(k), self._heads(v)

    def _heads(self, x: Tensor) -> Tensor:
        """A view (batch, heads, length, numbers)."""
        parts = F.reshape(x, (*x.shape[:2], self.num_heads, self.head_dim))
        return F.permute(parts, (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3))

    def _joined(self, y: Tensor) -> Tensor:
        """The reverse of ``_heads``."""
        parts = F.permute(y, (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3))
        return F.reshape(parts, (*parts.shape[:2], self.embed_dim))

    def _padding(self, mask: Tensor | None, batch: int, keys: int, is_single: bool) -> Tensor | None:
        """The padding's mask as (batch, 1, 1, keys)."""
        if mask is None:
            return None
        _check_mask("key_padding_mask", mask)
        if mask.shape != ((keys,) if is_single else (batch, keys)):
            wanted = f"({keys},)" if is_single else f"({batch}, {keys})"
            raise ShapeError(f"[{_NAME}] expected key_padding_mask {wanted}, got {mask.shape}")
        return F.reshape(mask, (batch, 1, 1, keys))

    def _mask(self, mask: Tensor | None, batch: int, length: int, keys: int) -> Tensor | None:
        """The mask as (batch or 1, heads or 1, length, keys)."""
        if mask is None:
            return None
        _check_mask("attn_mask", mask)
        several = batch * self.num_heads, length, keys
        if mask.shape not in ((length, keys), several):
            raise ShapeError(f"[{_NAME}] expected attn_mask {(length, keys)} or {several}, got {mask.shape}")
        shape = (1, 1) if mask.ndim == 2 else (batch, self.num_heads)
        return F.reshape(mask, (*shape, length, keys))

    @staticmethod
    def _weighted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> tuple[Tensor, Tensor]:
        """The result and the weights, all of which are in memory."""
        scores = F.matmul(q * (1 / math.sqrt(q.shape[-1])), F.transpose(k, -2, -1))
        if mask is not None:
            scores = F.where(mask, -math.inf, scores) if is_bool(mask.dtype) else scores + mask
        weights = F.softmax(scores, -1)
        weights = F.dropout(weights, dropout) if dropout else weights
        return F.matmul(weights, v), weights


def _check_mask(name: str, mask: Tensor) -> None:
    check_tensor(_NAME, mask)
    if not is_bool(mask.dtype) and not is_float(mask.dtype):
        raise DtypeError(f"[{_NAME}] expected {name} of bool or floats, got {mask.dtype}: compare it, as in mask != 0")


def _merged(mask: Tensor | None, padding: Tensor | None, q: Tensor, keys: int) -> Tensor | None:
    """Both masks in one: bools, True where a key is not seen, or floats; keys that were added are seen."""
    given = [one for one in (mask, padding) if one is not None]
    if not given:
        return None
    if not all(is_bool(one.dtype) for one in given):
        given = [_added(one, q) for one in given]
    if given[0].shape[-1] != keys:
        more = keys - given[0].shape[-1]
        given = [
            F.concat([one, alpha.zeros((*one.shape[:-1], more), dtype=one.dtype, engine=q.engine)], -1) for one in given
        ]
    if len(given) == 1:
        return given[0]
    return F.logical_or(*given) if is_bool(given[0].dtype) else given[0] + given[1]


def _with_seen(mask: Tensor, count: int) -> Tensor:
    """A mask with so many keys more, which every query sees."""
    return F.concat([mask, alpha.zeros((*mask.shape[:-1], count), dtype=mask.dtype, engine=mask.engine)], -1)


def _added(mask: Tensor, q: Tensor) -> Tensor:
    """A mask as floats to be added to the scores."""
    if not is_bool(mask.dtype):
        return mask.to(q.dtype)
    zeros = alpha.zeros(mask.shape, dtype=q.dtype, engine=q.engine)
    return F.where(mask, -math.inf, zeros)
