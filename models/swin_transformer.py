"""The Swin transformers (Liu et al., arXiv 2103.14030 and 2111.09883) with torchvision's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from alpha import Tensor, nn, tensor
from alpha import functions as F
from alpha.errors import ArgumentError, ShapeError
from alpha.models.parts import MLP, ImageNetwork, Layers, Permute, StochasticDepth, draw_weights
from alpha.models.registry import builder
from alpha.models.windows import WindowPlan, joined, offset_numbers, split
from alpha.nn.arguments import pair, positive, probability
from alpha.nn.places import empty_parameter

_LAYER_NORM = partial(nn.LayerNorm, eps=1e-5)
_STEEPEST = math.log(100.0)
"""The most that the logarithm of a head's factor counts as."""


class ShiftedWindowAttention(nn.Module):
    """Attention of the pixels (N, H, W, dim) in each window to each other, with a learned bias for each offset.

    The windows lie ``shift_size`` pixels further down and to the right than a grid from the corner, around the edges;
    pixels from both ends of an edge do not attend to each other. Along an axis that one window covers there is no
    shift.

    Args:
        dim: length of a pixel.
        window_size: rows and columns of a window.
        shift_size: rows and columns of the shift.
        num_heads: how many parts of a pixel attend for themselves.
        qkv_bias, proj_bias: whether the layers before and behind learn a bias.
        attention_dropout: probability of leaving a pair of pixels out in training. dropout: that of a result.
    """

    relative_position_index: Tensor

    def __init__(
        self,
        dim: int,
        window_size: Sequence[int],
        shift_size: Sequence[int],
        num_heads: int,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.window_size = pair(tuple(window_size), "window_size", name)
        if len(shift_size) != 2 or any(not 0 <= step < n for step, n in zip(shift_size, self.window_size, strict=True)):
            raise ArgumentError(
                f"[{name}] expected shift_size as two numbers from 0 to below {self.window_size}, got {shift_size}"
            )
        self.shift_size = (shift_size[0], shift_size[1])
        self.num_heads = positive(num_heads, "num_heads", name)
        if positive(dim, "dim", name) % num_heads:
            raise ArgumentError(f"[{name}] expected num_heads that divides dim {dim}, got {num_heads}")
        self.attention_dropout = probability(attention_dropout, "attention_dropout", name)
        self.dropout = probability(dropout, "dropout", name)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim, bias=proj_bias)
        self.register_buffer("relative_position_index", tensor(offset_numbers(self.window_size).reshape(-1)))
        self._make_bias()

    def _make_bias(self) -> None:
        offsets = (2 * self.window_size[0] - 1) * (2 * self.window_size[1] - 1)
        table = empty_parameter(offsets, self.num_heads)
        self.relative_position_bias_table = nn.init.trunc_normal_(table, std=0.02)

    def get_relative_position_bias(self) -> Tensor:
        """(1, num_heads, L, L): what the scores of a window's pixels gain."""
        return self._by_pair(self.relative_position_bias_table)

    def _by_pair(self, table: Tensor) -> Tensor:
        """(offsets, num_heads) as (1, num_heads, L, L)."""
        length = self.window_size[0] * self.window_size[1]
        chosen = table[self.relative_position_index].reshape(length, length, self.num_heads)
        return chosen.permute(2, 0, 1).unsqueeze(0)

    def _projected(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side."""
        return self.qkv(x)  # type: ignore[no-any-return]

    def _attended(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        p = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, bias, dropout_p=p)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, dim) to the same."""
        if x.ndim != 4:
            raise ShapeError(f"[{type(self).__name__}] expected pixels (N, H, W, dim), got {x.shape}")
        plan = WindowPlan.of(x.shape[1:3], self.window_size, self.shift_size)
        windows = split(x, plan)  # (N, windows, L, dim)
        n, count, length, dim = windows.shape
        bias = self.get_relative_position_bias()
        if any(plan.shift):
            bias = bias + tensor(plan.mask(), dtype=x.dtype, engine=x.engine)
        parts = self._projected(windows).reshape(n, count, length, 3, self.num_heads, dim // self.num_heads)
        query, key, value = parts.permute(3, 0, 1, 4, 2, 5)
        mixed = self._attended(query, key, value, bias).transpose(2, 3).reshape(n, count, length, dim)
        made = F.dropout(self.proj(mixed), self.dropout, self.training)
        return joined(made, plan)


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """As ShiftedWindowAttention, but scores are cosines times a learned factor, and a small network makes the biases
    from the logarithms of the offsets. Arguments as there."""

    logit_scale: nn.Parameter
    relative_coords_table: Tensor

    def _make_bias(self) -> None:
        self.logit_scale = nn.Parameter(F.full((self.num_heads, 1, 1), math.log(10.0)))
        hidden, heads = nn.Linear(2, 512), nn.Linear(512, self.num_heads, bias=False)
        self.cpb_mlp = nn.Sequential(hidden, nn.ReLU(inplace=True), heads)
        axes = [8.0 * np.arange(1 - n, n) / max(n - 1, 1) for n in self.window_size]
        offsets = np.stack(np.meshgrid(*axes, indexing="ij"), -1)[None]
        steps = np.sign(offsets) * np.log2(np.abs(offsets) + 1.0) / 3.0
        self.register_buffer("relative_coords_table", tensor(steps.astype(np.float32)))

    def get_relative_position_bias(self) -> Tensor:
        """(1, num_heads, L, L), within 0..16."""
        table = self.cpb_mlp(self.relative_coords_table).reshape(-1, self.num_heads)
        return 16.0 * self._by_pair(table).sigmoid()

    def _projected(self, x: Tensor) -> Tensor:
        """As there, with no bias for the keys."""
        if self.qkv.bias is None:
            return super()._projected(x)
        query, _, value = self.qkv.bias.chunk(3)
        return F.linear(x, self.qkv.weight, F.cat([query, F.zeros_like(query), value]))

    def _attended(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        factor = F.clamp(self.logit_scale, max=_STEEPEST).exp()
        query, key = F.normalize(query, dim=-1) * factor, F.normalize(key, dim=-1)
        p = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, bias, dropout_p=p, scale=1.0)


class PatchMerging(nn.Module):
    """(N, H, W, dim) to (N, H / 2, W / 2, 2 * dim), rounded up: squares of four pixels through a linear layer."""

    def __init__(self, dim: int, norm_layer: Layers = nn.LayerNorm) -> None:
        super().__init__()
        self.dim = dim
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = norm_layer(self._norm_width(dim))

    def _norm_width(self, dim: int) -> int:
        return 4 * dim

    def _merged(self, x: Tensor) -> Tensor:
        """(N, H / 2, W / 2, 4 * dim)"""
        if x.ndim != 4:
            raise ShapeError(f"[{type(self).__name__}] expected pixels (N, H, W, dim), got {x.shape}")
        if x.shape[1] % 2 or x.shape[2] % 2:
            x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        return F.cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Pixels to pixels."""
        return self.reduction(self.norm(self._merged(x)))  # type: ignore[no-any-return]


class PatchMergingV2(PatchMerging):
    """As PatchMerging, with the normalisation behind the linear layer."""

    def _norm_width(self, dim: int) -> int:
        return 2 * dim

    def forward(self, x: Tensor) -> Tensor:
        """Pixels to pixels."""
        return self.norm(self.reduction(self._merged(x)))  # type: ignore[no-any-return]


class SwinTransformerBlock(nn.Module):
    """Attention and two linear layers, each behind a normalisation and added to its input.

    Args:
        dim, num_heads, window_size, shift_size, dropout, attention_dropout: as for ``attn_layer``.
        mlp_ratio: the length between the two linear layers, relative to ``dim``.
        stochastic_depth_prob: how often a part is left out.
        norm_layer: makes a normalisation from a length.
        attn_layer: makes the attention.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window_size: Sequence[int],
        shift_size: Sequence[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.0,
        norm_layer: Layers = nn.LayerNorm,
        attn_layer: Layers = ShiftedWindowAttention,
    ) -> None:
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = attn_layer(
            dim, window_size, shift_size, num_heads, attention_dropout=attention_dropout, dropout=dropout
        )
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.norm2 = norm_layer(dim)
        self.mlp = MLP(dim, [int(dim * mlp_ratio), dim], activation_layer=nn.GELU, dropout=dropout)
        for layer in (self.mlp[0], self.mlp[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, dim) to the same."""
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))  # type: ignore[no-any-return]


class SwinTransformerBlockV2(SwinTransformerBlock):
    """As SwinTransformerBlock, with each normalisation behind its part. Arguments as there."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window_size: Sequence[int],
        shift_size: Sequence[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.0,
        norm_layer: Layers = nn.LayerNorm,
        attn_layer: Layers = ShiftedWindowAttentionV2,
    ) -> None:
        sizes = (dim, num_heads, window_size, shift_size, mlp_ratio)
        super().__init__(*sizes, dropout, attention_dropout, stochastic_depth_prob, norm_layer, attn_layer)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, dim) to the same."""
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))  # type: ignore[no-any-return]


class SwinTransformer(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        patch_size: rows and columns of the rectangles of which each becomes a pixel.
        embed_dim: length of a pixel in the first stage; it doubles from one to the next.
        depths: blocks of each stage. num_heads: heads of each stage's attentions.
        window_size: rows and columns of the windows; every other block's are shifted by half of them.
        mlp_ratio, dropout, attention_dropout: as for the blocks.
        stochastic_depth_prob: that of the last block; it grows from 0 at the first one on.
        num_classes: length of the result's last axis.
        norm_layer: makes a normalisation from a length; LayerNorm of eps 1e-5 by default.
        block: a class in the place of SwinTransformerBlock.
        downsample_layer: makes what is between two stages.
    """

    def __init__(
        self,
        patch_size: Sequence[int],
        embed_dim: int,
        depths: Sequence[int],
        num_heads: Sequence[int],
        window_size: Sequence[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.1,
        num_classes: int = 1000,
        norm_layer: Layers | None = None,
        block: Layers | None = None,
        downsample_layer: Layers = PatchMerging,
    ) -> None:
        super().__init__()
        if not depths or len(depths) != len(num_heads):
            raise ArgumentError(
                f"[SwinTransformer] expected depths and num_heads with a number for each stage, got {depths} and "
                f"{num_heads}"
            )
        self.num_classes = num_classes
        norm, make, first = norm_layer or _LAYER_NORM, block or SwinTransformerBlock, self.layout == "NCHW"
        patches = pair(tuple(patch_size), "patch_size", "SwinTransformer")
        stem = [nn.Conv2d(3, embed_dim, patches, patches), Permute([0, 2, 3, 1]) if first else nn.Identity()]
        layers: list[nn.Module] = [nn.Sequential(*stem, norm(embed_dim))]
        shifts = [(0, 0), tuple(n // 2 for n in window_size)]
        place, last, width = 0, max(1, sum(depths) - 1), embed_dim
        for stage, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            if stage:
                layers.append(downsample_layer(width, norm))
                width *= 2
            blocks = []
            for number in range(depth):
                sizes = (width, heads, window_size, shifts[number % 2], mlp_ratio)
                p = stochastic_depth_prob * place / last
                blocks.append(make(*sizes, dropout, attention_dropout, p, norm_layer=norm))
                place += 1
            layers.append(nn.Sequential(*blocks))
        self.features = nn.Sequential(*layers)
        self.norm = norm(width)
        self.permute = Permute([0, 3, 1, 2]) if first else nn.Identity()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten(1)
        self.head = nn.Linear(width, num_classes)
        draw_weights(self, None, partial(nn.init.trunc_normal_, std=0.02))

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        pixels = self.norm(self.features(x))
        return self.head(self.flatten(self.avgpool(self.permute(pixels))))  # type: ignore[no-any-return]


_SMALL = {"patch_size": (4, 4), "embed_dim": 96, "num_heads": (3, 6, 12, 24)}
_BASE = {"patch_size": (4, 4), "embed_dim": 128, "num_heads": (4, 8, 16, 32)}
_SHALLOW, _DEEP = (2, 2, 6, 2), (2, 2, 18, 2)
_FIRST = {"window_size": (7, 7)}
_SECOND = {"window_size": (8, 8), "block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}

swin_t = builder("swin_t", SwinTransformer, **_SMALL, **_FIRST, depths=_SHALLOW, stochastic_depth_prob=0.2)
swin_s = builder("swin_s", SwinTransformer, **_SMALL, **_FIRST, depths=_DEEP, stochastic_depth_prob=0.3)
swin_b = builder("swin_b", SwinTransformer, **_BASE, **_FIRST, depths=_DEEP, stochastic_depth_prob=0.5)
swin_v2_t = builder("swin_v2_t", SwinTransformer, **_SMALL, **_SECOND, depths=_SHALLOW, stochastic_depth_prob=0.2)
swin_v2_s = builder("swin_v2_s", SwinTransformer, **_SMALL, **_SECOND, depths=_DEEP, stochastic_depth_prob=0.3)
swin_v2_b = builder("swin_v2_b", SwinTransformer, **_BASE, **_SECOND, depths=_DEEP, stochastic_depth_prob=0.5)
