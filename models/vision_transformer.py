"""The vision transformer (Dosovitskiy et al., arXiv 2010.11929) with torchvision's names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from alpha import Tensor, nn
from alpha import functions as F
from alpha.errors import ArgumentError, ShapeError
from alpha.models.parts import MLP, Conv2dNormActivation, ImageNetwork, Layers, draw_weights
from alpha.models.registry import builder
from alpha.nn.arguments import positive, probability
from alpha.nn.places import empty_parameter

_LAYER_NORM = partial(nn.LayerNorm, eps=1e-6)
_OLD_NAME = re.compile(r"(.*\.mlp)\.linear_([12])\.(.*)")


class ConvStemConfig(NamedTuple):
    """A convolution of the stem in the place of the one over patches: Xiao et al., arXiv 2106.14881."""

    out_channels: int
    kernel_size: int
    stride: int
    norm_layer: Layers = nn.BatchNorm2d
    activation_layer: Layers = nn.ReLU


class SelfAttention(nn.Module):
    """Attention of tokens (N, S, embed_dim) to each other, in several heads.

    ``in_proj_weight`` (3 * embed_dim, embed_dim) makes queries, keys and values in this order, as that of PyTorch's
    MultiheadAttention, whose names these are.

    Args:
        embed_dim: length of a token.
        num_heads: how many parts of it attend for themselves.
        dropout: probability of leaving a pair of tokens out in training.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = positive(num_heads, "num_heads", "SelfAttention")
        if embed_dim % num_heads:
            raise ArgumentError(
                f"[SelfAttention] expected num_heads that divides embed_dim {embed_dim}, got {num_heads}"
            )
        self.embed_dim, self.dropout = embed_dim, probability(dropout, "dropout", "SelfAttention")
        self.in_proj_weight = nn.init.xavier_uniform_(empty_parameter(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.init.zeros_(empty_parameter(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        draw_weights(self.out_proj, None)

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, embed_dim) to the same."""
        n, tokens, width = x.shape
        joint = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        parts = joint.reshape(n, tokens, 3, self.num_heads, width // self.num_heads).permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], dropout_p=p)
        return self.out_proj(y.transpose(1, 2).reshape(n, tokens, width))  # type: ignore[no-any-return]


class MLPBlock(MLP):
    """Two linear layers with a GELU between."""

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__(in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, dropout=dropout)
        for layer in (self[0], self[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Attention and two linear layers, each behind a normalisation and added to its input."""

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Layers = _LAYER_NORM,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = SelfAttention(hidden_dim, num_heads, attention_dropout)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, hidden_dim) to the same."""
        if x.ndim != 3:
            raise ShapeError(f"[EncoderBlock] expected tokens (N, S, hidden_dim), got {x.shape}")
        x = self.dropout(self.self_attention(self.ln_1(x))) + x
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Tokens with a learned embedding of their places, through a row of blocks and a normalisation."""

    def __init__(
        self,
        seq_length: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Layers = _LAYER_NORM,
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.init.normal_(empty_parameter(1, seq_length, hidden_dim), std=0.02)
        self.dropout = nn.Dropout(dropout)
        block = partial(EncoderBlock, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        self.layers = nn.Sequential({f"encoder_layer_{place}": block() for place in range(num_layers)})
        self.ln = norm_layer(hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        """(N, S, hidden_dim) to the same."""
        if x.ndim != 3:
            raise ShapeError(f"[Encoder] expected tokens (N, S, hidden_dim), got {x.shape}")
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))  # type: ignore[no-any-return]


class VisionTransformer(ImageNetwork):
    """Images of 3 channels and of ``image_size`` rows and columns to logits (N, num_classes).

    Args:
        image_size: side of the images, a multiple of ``patch_size``.
        patch_size: side of the squares of which each becomes a token.
        num_layers: blocks of the encoder.
        num_heads: heads of each attention.
        hidden_dim: length of a token.
        mlp_dim: length between each block's two linear layers.
        dropout, attention_dropout: probabilities in training.
        num_classes: length of the result's last axis.
        representation_size: length of a hidden linear layer before the logits; None for none.
        norm_layer: makes a normalisation from a length; LayerNorm of eps 1e-6 by default.
        conv_stem_configs: convolutions in the place of the one over patches.
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        representation_size: int | None = None,
        norm_layer: Layers = _LAYER_NORM,
        conv_stem_configs: Sequence[ConvStemConfig] | None = None,
    ) -> None:
        super().__init__()
        for argument, value in (("image_size", image_size), ("patch_size", patch_size), ("num_layers", num_layers)):
            positive(value, argument, "VisionTransformer")
        if image_size % patch_size:
            raise ArgumentError(
                f"[VisionTransformer] expected image_size as a multiple of patch_size {patch_size}, got {image_size}"
            )
        self.image_size, self.patch_size = image_size, patch_size
        self.hidden_dim, self.mlp_dim = hidden_dim, mlp_dim
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.num_classes, self.representation_size = num_classes, representation_size
        self.norm_layer = norm_layer
        self.class_token = nn.init.zeros_(empty_parameter(1, 1, hidden_dim))
        self.conv_proj = self._stem(conv_stem_configs)
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(
            self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer
        )
        self.heads = self._heads()

    def _stem(self, configs: Sequence[ConvStemConfig] | None) -> nn.Module:
        """A convolution over patches, or the given ones and a last one of 1x1."""
        if configs is None:
            patches = nn.Conv2d(3, self.hidden_dim, self.patch_size, self.patch_size)
            draw_weights(patches, partial(nn.init.trunc_normal_, std=math.sqrt(1 / (3 * self.patch_size**2))))
            return patches
        layers: dict[str, nn.Module] = {}
        inputs = 3
        for place, config in enumerate(configs):
            sizes, kinds = (config.kernel_size, config.stride), (config.norm_layer, config.activation_layer)
            layers[f"conv_bn_relu_{place}"] = Conv2dNormActivation(
                inputs, config.out_channels, *sizes, norm_layer=kinds[0], activation_layer=kinds[1]
            )
            inputs = config.out_channels
        last = layers["conv_last"] = nn.Conv2d(inputs, self.hidden_dim, 1)
        draw_weights(last, partial(nn.init.normal_, std=math.sqrt(2 / self.hidden_dim)))
        return nn.Sequential(layers)

    def _heads(self) -> nn.Sequential:
        """A linear layer whose logits begin as 0, behind a hidden one where a size is given for it."""
        layers: dict[str, nn.Module] = {}
        width = self.hidden_dim
        if self.representation_size is not None:
            hidden = nn.Linear(width, self.representation_size)
            draw_weights(hidden, None, partial(nn.init.trunc_normal_, std=math.sqrt(1 / width)))
            layers, width = {"pre_logits": hidden, "act": nn.Tanh()}, self.representation_size
        head = layers["head"] = nn.Linear(width, self.num_classes)
        draw_weights(head, None, nn.init.zeros_)
        return nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        first = self.layout == "NCHW"
        size = x.shape[2:] if first else x.shape[1:3]
        if size != (self.image_size, self.image_size):
            raise ShapeError(
                f"[VisionTransformer] expected images of {self.image_size} x {self.image_size} pixels, got {x.shape}: "
                "resize them, or give image_size to the network"
            )
        maps = self.conv_proj(x)
        patches = (maps.permute(0, 2, 3, 1) if first else maps).reshape(len(x), -1, self.hidden_dim)
        token = self.class_token.expand(len(x), 1, self.hidden_dim)
        encoded = self.encoder(F.cat([token, patches], dim=1))
        return self.heads(encoded[:, 0])  # type: ignore[no-any-return]

    def current_name(self, name: str) -> str:
        """The present name of an entry of torchvision's published files, which say ``mlp.linear_1`` for ``mlp.0``."""
        return _OLD_NAME.sub(lambda found: f"{found[1]}.{3 * (int(found[2]) - 1)}.{found[3]}", name)


_BASE = {"num_layers": 12, "num_heads": 12, "hidden_dim": 768, "mlp_dim": 3072, "image_size": 224}
_LARGE = {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024, "mlp_dim": 4096, "image_size": 224}
_HUGE = {"num_layers": 32, "num_heads": 16, "hidden_dim": 1280, "mlp_dim": 5120, "image_size": 224}

vit_b_16 = builder("vit_b_16", VisionTransformer, patch_size=16, **_BASE)
vit_b_32 = builder("vit_b_32", VisionTransformer, patch_size=32, **_BASE)
vit_l_16 = builder("vit_l_16", VisionTransformer, patch_size=16, **_LARGE)
vit_l_32 = builder("vit_l_32", VisionTransformer, patch_size=32, **_LARGE)
vit_h_14 = builder("vit_h_14", VisionTransformer, patch_size=14, **_HUGE)
