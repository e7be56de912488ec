"""ConvNeXt (Liu et al., arXiv 2201.03545) with torchvision's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import alpha
from alpha import Tensor, nn
from alpha.arguments import number
from alpha.errors import ArgumentError
from alpha.models.parts import (
    Conv2dNormActivation,
    ImageNetwork,
    Layers,
    Permute,
    StochasticDepth,
    draw_weights,
)
from alpha.models.registry import builder


class LayerNorm2d(nn.LayerNorm):
    """Normalisation of each pixel's channels, in the image layout in which the layer was made."""

    def __init__(
        self, normalized_shape: int, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias)
        self.layout = alpha.get_image_layout()

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        if self.layout == "NHWC":
            return super().forward(x)
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CNBlock(ImageNetwork):
    """x + layer_scale * block(x): a depthwise 7x7 convolution, a LayerNorm and two linear layers at each pixel.

    ``layer_scale`` is (dim, 1, 1) in both layouts, as in PyTorch.

    Args:
        dim: channels.
        layer_scale: its first value.
        stochastic_depth_prob: how often ``block(x)`` is left out.
        norm_layer: makes a normalisation of the last axis from a number of channels; LayerNorm of eps 1e-6 by default.
    """

    def __init__(
        self, dim: int, layer_scale: float, stochastic_depth_prob: float, norm_layer: Layers | None = None
    ) -> None:
        super().__init__()
        norm, first = norm_layer or partial(nn.LayerNorm, eps=1e-6), self.layout == "NCHW"
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
            Permute([0, 2, 3, 1]) if first else nn.Identity(),
            norm(dim),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute([0, 3, 1, 2]) if first else nn.Identity(),
        )
        self.layer_scale = nn.Parameter(alpha.full((dim, 1, 1), number("CNBlock", "layer_scale", layer_scale)))
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of the same shape."""
        scale = self.layer_scale if self.layout == "NCHW" else self.layer_scale.reshape(-1)
        return self.stochastic_depth(scale * self.block(x)) + x  # type: ignore[no-any-return]


@dataclass
class CNBlockConfig:
    """A stage: channels, those of the next stage (None for the last), and the number of blocks."""

    input_channels: int
    out_channels: int | None
    num_layers: int


class ConvNeXt(ImageNetwork):
    """Images of 3 channels to logits (N, num_classes).

    Args:
        block_setting: the stages.
        stochastic_depth_prob: that of the last block; it grows from 0 at the first one on.
        layer_scale: the first value of each block's factors.
        num_classes: length of the result's last axis.
        block: a class in the place of CNBlock.
        norm_layer: makes a normalisation of maps from a number of channels; LayerNorm2d of eps 1e-6 by default.
    """

    def __init__(
        self,
        block_setting: Sequence[CNBlockConfig],
        stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6,
        num_classes: int = 1000,
        block: Layers | None = None,
        norm_layer: Layers | None = None,
    ) -> None:
        super().__init__()
        if not block_setting:
            raise ArgumentError("[ConvNeXt] expected block_setting with at least one stage, got none")
        block, norm = block or CNBlock, norm_layer or partial(LayerNorm2d, eps=1e-6)
        inputs = block_setting[0].input_channels
        layers: list[nn.Module] = [
            Conv2dNormActivation(3, inputs, 4, 4, 0, norm_layer=norm, activation_layer=None, bias=True)
        ]
        last, place = max(1, sum(stage.num_layers for stage in block_setting) - 1), 0
        for stage in block_setting:
            blocks = []
            for _ in range(stage.num_layers):
                blocks.append(block(stage.input_channels, layer_scale, stochastic_depth_prob * place / last))
                place += 1
            layers.append(nn.Sequential(*blocks))
            if stage.out_channels is not None:
                halving = nn.Conv2d(stage.input_channels, stage.out_channels, 2, 2)
                layers.append(nn.Sequential(norm(stage.input_channels), halving))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        outputs = block_setting[-1].out_channels or block_setting[-1].input_channels
        self.classifier = nn.Sequential(norm(outputs), nn.Flatten(1), nn.Linear(outputs, num_classes))
        draw = partial(nn.init.trunc_normal_, std=0.02)
        draw_weights(self, draw, draw)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.classifier(self.avgpool(self.features(x)))  # type: ignore[no-any-return]


def _stages(widths: Sequence[int], blocks: Sequence[int]) -> tuple[CNBlockConfig, ...]:
    nexts = (*widths[1:], None)
    return tuple(CNBlockConfig(*stage) for stage in zip(widths, nexts, blocks, strict=True))


_TINY, _DEEP = (3, 3, 9, 3), (3, 3, 27, 3)

convnext_tiny = builder("convnext_tiny", ConvNeXt, _stages((96, 192, 384, 768), _TINY), stochastic_depth_prob=0.1)
convnext_small = builder("convnext_small", ConvNeXt, _stages((96, 192, 384, 768), _DEEP), stochastic_depth_prob=0.4)
convnext_base = builder("convnext_base", ConvNeXt, _stages((128, 256, 512, 1024), _DEEP), stochastic_depth_prob=0.5)
convnext_large = builder("convnext_large", ConvNeXt, _stages((192, 384, 768, 1536), _DEEP), stochastic_depth_prob=0.5)
