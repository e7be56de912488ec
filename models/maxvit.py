"""MaxViT (Tu et al., arXiv 2204.01697) with torchvision's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from alpha import Tensor, nn, tensor
from alpha import functions as F
from alpha.errors import ArgumentError, ShapeError
from alpha.models.parts import (
    Conv2dNormActivation,
    ImageNetwork,
    Layers,
    SqueezeExcitation,
    StochasticDepth,
    draw_weights,
)
from alpha.models.registry import builder
from alpha.models.windows import WindowPlan, joined, offset_numbers, split
from alpha.nn.arguments import choice, pair, positive
from alpha.nn.places import empty_parameter

_BATCH_NORM = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)


class LayerSettings(NamedTuple):
    """What all layers of the network have in common; names as for MaxVit."""

    head_dim: int
    partition_size: int
    norm_layer: Layers
    activation_layer: Layers
    squeeze_ratio: float
    expansion_ratio: float
    mlp_ratio: int
    mlp_dropout: float
    attention_dropout: float


class MBConv(ImageNetwork):
    """A residual of two 1x1 convolutions with a depthwise 3x3 one and squeeze and excitation between.

    Args:
        in_channels, out_channels: of the images.
        stride: the depthwise convolution's; the shortcut is then pooled.
        p_stochastic_dropout: how often the residual is left out.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, p_stochastic_dropout: float, settings: LayerSettings
    ) -> None:
        super().__init__()
        self.proj: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            pool = [nn.AvgPool2d(3, stride, 1)] if stride == 2 else []
            self.proj = nn.Sequential(*pool, nn.Conv2d(in_channels, out_channels, 1))
        inner, squeezed = int(out_channels * settings.expansion_ratio), int(out_channels * settings.squeeze_ratio)
        p = p_stochastic_dropout
        self.stochastic_depth = StochasticDepth(p, "row") if p else nn.Identity()
        convolution = partial(
            Conv2dNormActivation,
            norm_layer=settings.norm_layer,
            activation_layer=settings.activation_layer,
            inplace=None,
        )
        self.layers = nn.Sequential(
            {
                "pre_norm": settings.norm_layer(in_channels),
                "conv_a": convolution(in_channels, inner, 1),
                "conv_b": convolution(inner, inner, 3, stride, groups=inner),
                "squeeze_excitation": SqueezeExcitation(inner, squeezed, activation=nn.SiLU),
                "conv_c": nn.Conv2d(inner, out_channels, 1),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return self.proj(x) + self.stochastic_depth(self.layers(x))  # type: ignore[no-any-return]


class RelativePositionalMultiHeadAttention(nn.Module):
    """Attention of tokens (..., L, feat_dim) to each other, with a learned bias for each offset in a square.

    Args:
        feat_dim: length of a token.
        head_dim: length of the part of it that attends for itself.
        max_seq_len: L, the square of the square's side.
    """

    relative_position_index: Tensor

    def __init__(self, feat_dim: int, head_dim: int, max_seq_len: int) -> None:
        super().__init__()
        name = "RelativePositionalMultiHeadAttention"
        if positive(feat_dim, "feat_dim", name) % positive(head_dim, "head_dim", name):
            raise ArgumentError(f"[{name}] expected head_dim that divides feat_dim {feat_dim}, got {head_dim}")
        side = math.isqrt(positive(max_seq_len, "max_seq_len", name))
        self.n_heads, self.head_dim, self.max_seq_len = feat_dim // head_dim, head_dim, max_seq_len
        self.scale_factor = feat_dim**-0.5
        self.to_qkv, self.merge = nn.Linear(feat_dim, 3 * feat_dim), nn.Linear(feat_dim, feat_dim)
        table = empty_parameter((2 * side - 1) ** 2, self.n_heads)
        self.relative_position_bias_table = nn.init.trunc_normal_(table, std=0.02)
        self.register_buffer("relative_position_index", tensor(offset_numbers((side, side))))

    def get_relative_positional_bias(self) -> Tensor:
        """(1, n_heads, L, L): what the scores gain."""
        length = self.max_seq_len
        chosen = self.relative_position_bias_table[self.relative_position_index.reshape(-1)]
        return chosen.reshape(length, length, self.n_heads).permute(2, 0, 1).unsqueeze(0)

    def forward(self, x: Tensor) -> Tensor:
        """(N, groups, L, feat_dim) to the same."""
        n, groups, length, width = x.shape
        parts = self.to_qkv(x).reshape(n, groups, length, 3, self.n_heads, self.head_dim)
        query, key, value = parts.permute(3, 0, 1, 4, 2, 5)
        bias = self.get_relative_positional_bias()
        mixed = F.scaled_dot_product_attention(query, key, value, bias, scale=self.scale_factor)
        return self.merge(mixed.transpose(2, 3).reshape(n, groups, length, width))  # type: ignore[no-any-return]


class PartitionAttentionLayer(ImageNetwork):
    """Attention and two linear layers, of the pixels in each window, or of those at one place in each window.

    Args:
        in_channels: of the images.
        partition_type: ``"window"`` for windows of ``partition_size`` rows and columns, ``"grid"`` for as many windows
            down and across, whose pixels at the same place attend to each other.
        grid_size: height and width of the images.
        p_stochastic_dropout: how often a part is left out.
    """

    def __init__(
        self,
        in_channels: int,
        partition_type: str,
        grid_size: tuple[int, int],
        p_stochastic_dropout: float,
        settings: LayerSettings,
    ) -> None:
        super().__init__()
        across = choice(partition_type, ("window", "grid"), "partition_type", "PartitionAttentionLayer") == "grid"
        self.across, self.grid_size, side = across, grid_size, settings.partition_size
        self.window = (grid_size[0] // side, grid_size[1] // side) if across else (side, side)
        attention = RelativePositionalMultiHeadAttention(in_channels, settings.head_dim, side**2)
        self.attn_layer = nn.Sequential(nn.LayerNorm(in_channels), attention, nn.Dropout(settings.attention_dropout))
        hidden = in_channels * settings.mlp_ratio
        self.mlp_layer = nn.Sequential(
            nn.LayerNorm(in_channels),
            nn.Linear(in_channels, hidden),
            settings.activation_layer(),
            nn.Linear(hidden, in_channels),
            nn.Dropout(settings.mlp_dropout),
        )
        self.stochastic_dropout = StochasticDepth(p_stochastic_dropout, "row")

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of the same shape."""
        pixels = x.permute(0, 2, 3, 1) if self.layout == "NCHW" else x
        if pixels.shape[1:3] != self.grid_size:
            raise ShapeError(
                f"[PartitionAttentionLayer] expected maps of {self.grid_size[0]} x {self.grid_size[1]} pixels, got "
                f"{x.shape}: give input_size to the network"
            )
        plan = WindowPlan.of(self.grid_size, self.window, (0, 0))
        groups = split(pixels, plan)
        groups = groups.transpose(1, 2) if self.across else groups
        groups = groups + self.stochastic_dropout(self.attn_layer(groups))
        groups = groups + self.stochastic_dropout(self.mlp_layer(groups))
        made = joined(groups.transpose(1, 2) if self.across else groups, plan)
        return made.permute(0, 3, 1, 2) if self.layout == "NCHW" else made


class MaxVitLayer(nn.Module):
    """A convolutional block, attention within windows, and attention across them."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        grid_size: tuple[int, int],
        p_stochastic_dropout: float,
        settings: LayerSettings,
    ) -> None:
        super().__init__()
        p = p_stochastic_dropout
        self.layers = nn.Sequential(
            {
                "MBconv": MBConv(in_channels, out_channels, stride, p, settings),
                "window_attention": PartitionAttentionLayer(out_channels, "window", grid_size, p, settings),
                "grid_attention": PartitionAttentionLayer(out_channels, "grid", grid_size, p, settings),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return self.layers(x)  # type: ignore[no-any-return]


class MaxVitBlock(nn.Module):
    """A row of layers, of which the first halves height and width."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        grid_size: tuple[int, int],
        p_stochastic: Sequence[float],
        settings: LayerSettings,
    ) -> None:
        super().__init__()
        inputs = [in_channels, *[out_channels] * (len(p_stochastic) - 1)]
        self.layers = nn.ModuleList(
            MaxVitLayer(count, out_channels, 1 if place else 2, grid_size, p, settings)
            for place, (count, p) in enumerate(zip(inputs, p_stochastic, strict=True))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of half the height and width."""
        for layer in self.layers:
            x = layer(x)
        return x


class MaxVit(ImageNetwork):
    """Images of 3 channels and of ``input_size`` rows and columns to logits (N, num_classes).

    Args:
        input_size: height and width of the images.
        stem_channels: outputs of the first convolutions, which halve height and width, as each block does.
        partition_size: rows and columns of the windows, which must divide each block's maps.
        block_channels: outputs of each block. block_layers: layers of each.
        head_dim: length of what attends for itself.
        stochastic_depth_prob: that of the last layer; it grows from 0 at the first one on.
        norm_layer: makes a normalisation of maps; BatchNorm2d of eps 1e-3 and momentum 0.01 by default.
        activation_layer: makes an activation.
        squeeze_ratio: the share of a layer's outputs that squeezing leaves.
        expansion_ratio: channels within the convolutional blocks, relative to their outputs.
        mlp_ratio: the length between two linear layers, relative to a token's.
        mlp_dropout, attention_dropout: probabilities in training.
        num_classes: length of the result's last axis.
    """

    def __init__(
        self,
        input_size: tuple[int, int],
        stem_channels: int,
        partition_size: int,
        block_channels: Sequence[int],
        block_layers: Sequence[int],
        head_dim: int,
        stochastic_depth_prob: float,
        norm_layer: Layers | None = None,
        activation_layer: Layers = nn.GELU,
        squeeze_ratio: float = 0.25,
        expansion_ratio: float = 4,
        mlp_ratio: int = 4,
        mlp_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        if not block_layers or len(block_layers) != len(block_channels):
            raise ArgumentError(
                f"[MaxVit] expected block_channels and block_layers with a number for each block, got {block_channels} "
                f"and {block_layers}"
            )
        norm, self.partition_size = norm_layer or _BATCH_NORM, positive(partition_size, "partition_size", "MaxVit")
        settings = LayerSettings(
            head_dim, partition_size, norm, activation_layer, squeeze_ratio, expansion_ratio, mlp_ratio, mlp_dropout,
            attention_dropout,
        )  # fmt: skip
        convolution = partial(Conv2dNormActivation, inplace=None)
        self.stem = nn.Sequential(
            convolution(3, stem_channels, 3, 2, norm_layer=norm, activation_layer=activation_layer, bias=False),
            convolution(stem_channels, stem_channels, 3, 1, norm_layer=None, activation_layer=None, bias=True),
        )
        size = _half(pair(input_size, "input_size", "MaxVit"))
        p = np.linspace(0, stochastic_depth_prob, sum(block_layers)).tolist()
        blocks, inputs = [], stem_channels
        for channels, count in zip(block_channels, block_layers, strict=True):
            size = _half(size)
            if size[0] % partition_size or size[1] % partition_size:
                raise ArgumentError(
                    f"[MaxVit] expected partition_size that divides each block's maps, got {partition_size} and maps "
                    f"of {size[0]} x {size[1]}: use another input_size"
                )
            blocks.append(MaxVitBlock(inputs, channels, size, p[:count], settings))
            inputs, p = channels, p[count:]
        self.blocks = nn.ModuleList(blocks)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.LayerNorm(inputs),
            nn.Linear(inputs, inputs),
            nn.Tanh(),
            nn.Linear(inputs, num_classes, bias=False),
        )
        draw = partial(nn.init.normal_, std=0.02)
        draw_weights(self, draw, draw)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classifier(x)  # type: ignore[no-any-return]


def _half(size: tuple[int, int]) -> tuple[int, int]:
    """What a 3x3 convolution of stride 2 leaves of height and width."""
    return (size[0] + 1) // 2, (size[1] + 1) // 2


maxvit_t = builder(
    "maxvit_t",
    MaxVit,
    input_size=(224, 224),
    stem_channels=64,
    partition_size=7,
    block_channels=(64, 128, 256, 512),
    block_layers=(2, 2, 5, 2),
    head_dim=32,
    stochastic_depth_prob=0.2,
)
