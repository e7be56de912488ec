"""DCGAN, plain and conditional: a generator of transposed convolutions against a discriminator of strided ones.

Radford et al., "Unsupervised representation learning with deep convolutional generative adversarial networks", arXiv
1511.06434; the conditional form after Mirza & Osindero, arXiv 1411.1784.
"""

from __future__ import annotations

from itertools import pairwise

from alpha import Tensor, get_image_layout
from alpha import functions as F
from alpha.errors import ArgumentError, ShapeError
from alpha.nn import init
from alpha.nn.activation import LeakyReLU
from alpha.nn.arguments import positive
from alpha.nn.containers import Sequential
from alpha.nn.conv import Conv2d, ConvTranspose2d
from alpha.nn.embedding import Embedding
from alpha.nn.linear import Linear
from alpha.nn.models.conv_block import ConvBlock
from alpha.nn.module import Module

_SIDE = 4
"""Height and width of the smallest maps, where the generator begins and the discriminator ends."""
_SLOPE = 0.2
"""Slope of the discriminator's LeakyReLU, as in the paper."""
_STD = 0.02
"""Standard deviation of the initial weights, as in the paper."""


class DCGANGenerator(Module):
    """Latents (N, latent_size) to images (N, image_size, image_size, channels) in -1..1.

    The latents are projected to maps of 4 x 4; each 5x5 transposed convolution of stride 2 then doubles the maps and
    halves their channels. BatchNorm and ReLU follow all but the last, tanh the last. With classes, a learned vector of
    the image's class is joined to its latent.

    Args:
        latent_size: length of a latent.
        base_width: channels of the maps before the last layer; those of 4 x 4 have the most.
        image_size: height and width of an image: 8, 16, 32, 64, ...
        channels: of an image.
        num_classes: 0, or the number of classes for the conditional form.
    """

    def __init__(
        self,
        latent_size: int = 100,
        base_width: int = 64,
        image_size: int = 32,
        channels: int = 3,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        name = "DCGANGenerator"
        self.latent_size = positive(latent_size, "latent_size", name)
        self.channels = positive(channels, "channels", name)
        self.image_size, self.num_classes = image_size, positive(num_classes, "num_classes", name, least=0)
        widths = _widths(base_width, image_size, name)
        self.embedding = Embedding(num_classes, num_classes) if num_classes else None
        self.project = ConvBlock(ConvTranspose2d(latent_size + num_classes, widths[-1], _SIDE, bias=False), "relu")
        self.blocks = Sequential(
            *(ConvBlock(_doubling(*pair, bias=False), "relu") for pair in pairwise(reversed(widths)))
        )
        self.image = _doubling(widths[0], channels)
        _draw_weights(self)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Latents (N, latent_size), in the conditional form with classes (N,), to images."""
        if z.ndim != 2 or z.shape[1] != self.latent_size:
            raise ShapeError(f"[DCGANGenerator] expected latents (N, {self.latent_size}), got {z.shape}")
        _check_labels("DCGANGenerator", len(z), labels, self.num_classes)
        if self.embedding is not None:
            z = F.concat([z, self.embedding(labels)], dim=1)
        first = self.image.layout == "NCHW"
        x = self.project(F.reshape(z, (*z.shape, 1, 1) if first else (z.shape[0], 1, 1, z.shape[1])))
        return F.tanh(self.image(self.blocks(x)))


class DCGANDiscriminator(Module):
    """Images (N, image_size, image_size, channels) to logits (N,): large where an image is taken for a real one.

    Each 5x5 convolution of stride 2 halves the maps, down to 4 x 4, and doubles their channels. LeakyReLU(0.2) follows
    each, BatchNorm each but the first. With classes, a learned map of the image's class is one more channel of it.
    Arguments as for ``DCGANGenerator``; ``base_width`` is the channels behind the first convolution.
    """

    def __init__(self, base_width: int = 64, image_size: int = 32, channels: int = 3, num_classes: int = 0) -> None:
        super().__init__()
        name = "DCGANDiscriminator"
        self.channels = positive(channels, "channels", name)
        self.image_size, self.num_classes = image_size, positive(num_classes, "num_classes", name, least=0)
        widths = _widths(base_width, image_size, name)
        self.embedding = Embedding(num_classes, image_size**2) if num_classes else None
        self.features = Sequential(
            _halving(channels + bool(num_classes), base_width),
            LeakyReLU(_SLOPE),
            *(ConvBlock(_halving(*pair, bias=False), "leaky_relu", _SLOPE) for pair in pairwise(widths)),
        )
        self.linear = Linear(_SIDE * _SIDE * widths[-1], 1)
        self.layout = get_image_layout()
        self.flattened_maps = {"linear": (_SIDE, _SIDE)} if self.layout == "NHWC" else {}  # for PyTorch's weights
        _draw_weights(self)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """Images, in the conditional form with classes (N,), to logits (N,)."""
        size = self.image_size
        axis = 1 if self.layout == "NCHW" else 3
        wanted = (self.channels, size, size) if axis == 1 else (size, size, self.channels)
        if x.ndim != 4 or x.shape[1:] != wanted:
            place = "second" if axis == 1 else "last"
            raise ShapeError(
                f"[DCGANDiscriminator] expected images (N, {', '.join(map(str, wanted))}), got {x.shape}: channels "
                f"come {place}"
            )
        _check_labels("DCGANDiscriminator", len(x), labels, self.num_classes)
        if self.embedding is not None:
            more = (-1, 1, size, size) if axis == 1 else (-1, size, size, 1)
            x = F.concat([x, F.reshape(self.embedding(labels), more)], dim=axis)
        return F.reshape(self.linear(F.flatten(self.features(x), 1)), (-1,))


class DCGAN(Module):
    """A generator and a discriminator of one size, and the losses they train by; arguments as for ``DCGANGenerator``.

    Attributes:
        generator, discriminator: the two networks, each for an optimizer of its own; the paper's is Adam with lr 2e-4
            and betas (0.5, 0.999).
    """

    def __init__(
        self,
        latent_size: int = 100,
        base_width: int = 64,
        image_size: int = 32,
        channels: int = 3,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        self.generator = DCGANGenerator(latent_size, base_width, image_size, channels, num_classes)
        self.discriminator = DCGANDiscriminator(base_width, image_size, channels, num_classes)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Latents to images, as the generator makes them."""
        return self.generator(z, labels)  # type: ignore[no-any-return]

    def discriminator_loss(self, real: Tensor, fake: Tensor, labels: Tensor | None = None) -> Tensor:
        """-log s(D(real)) - log(1 - s(D(fake))), each averaged over its images, with s the sigmoid.

        The generator gets no gradient. Labels are those of the real images and of the fakes alike.
        """
        on_real, on_fake = self.discriminator(real, labels), self.discriminator(fake.detach(), labels)
        return _cross_entropy(on_real, 1.0) + _cross_entropy(on_fake, 0.0)

    def generator_loss(self, fake: Tensor, labels: Tensor | None = None) -> Tensor:
        """-log s(D(fake)), averaged: the loss that does not saturate. Goodfellow et al., arXiv 1406.2661, section 3.

        The discriminator's parameters get gradients too, unless they are frozen.
        """
        return _cross_entropy(self.discriminator(fake, labels), 1.0)


def _halving(inputs: int, outputs: int, bias: bool = True) -> Conv2d:
    return Conv2d(inputs, outputs, 5, stride=2, padding=2, bias=bias)


def _doubling(inputs: int, outputs: int, bias: bool = True) -> ConvTranspose2d:
    return ConvTranspose2d(inputs, outputs, 5, stride=2, padding=2, output_padding=1, bias=bias)


def _widths(base_width: int, image_size: int, name: str) -> list[int]:
    """Channels of the maps from half the image's size down to 4 x 4."""
    positive(base_width, "base_width", name)
    halvings = positive(image_size, "image_size", name).bit_length() - _SIDE.bit_length()
    if halvings < 1 or image_size != _SIDE << halvings:
        raise ArgumentError(f"[{name}] expected image_size as 8, 16, 32, 64 or a higher power of 2, got {image_size}")
    return [base_width << halving for halving in range(halvings)]


def _draw_weights(net: Module) -> None:
    """Filters and linear weights normal with deviation 0.02, their biases 0; BatchNorms and embeddings as they are."""
    for module in net.modules():
        if isinstance(module, Conv2d | ConvTranspose2d | Linear):
            init.normal_(module.weight, 0.0, _STD)
            if module.bias is not None:
                init.zeros_(module.bias)


def _check_labels(name: str, count: int, labels: Tensor | None, num_classes: int) -> None:
    """Labels on the network's engine, one per image; their range is the embedding's to check."""
    if (labels is not None) != (num_classes > 0):
        expected = f"classes as labels, of {num_classes}" if num_classes else "no labels, for num_classes is 0"
        raise ArgumentError(f"[{name}] expected {expected}, got {'none' if labels is None else labels.shape}")
    if labels is not None and labels.shape != (count,):
        raise ShapeError(f"[{name}] expected labels ({count},), one class per image, got {labels.shape}")


def _cross_entropy(logits: Tensor, target: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, F.full_like(logits, target))
