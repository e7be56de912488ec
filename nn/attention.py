"""MultiheadAttention."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError
from alpha.functions.multi_head import Heads, Seen, attended
from alpha.functions.operands import check_tensor
from alpha.nn import init
from alpha.nn.arguments import positive, probability
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed

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
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    @placed
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
        device: Device = None,
        dtype: DtypeLike = None,
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
        separate = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        added = self.bias_k, self.bias_v, self.add_zero_attn
        shape = self.embed_dim, self.num_heads, self.batch_first
        heads = Heads(_NAME, *shape, self.in_proj_weight, separate, self.in_proj_bias, *added)
        seen = Seen(key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
        y, weights = attended(heads, query, key, value, seen, self.dropout if self.training else 0.0)
        y = self.out_proj(y)
        return F.squeeze(y, 0 if self.batch_first else 1) if query.ndim == 2 else y, weights
