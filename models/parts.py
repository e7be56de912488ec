"""Parts that several networks share: convolution with normalisation and activation, squeeze and excitation, stochastic
depth, MLP; with torchvision's names and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import alpha
from alpha import Tensor, nn
from alpha import functions as F
from alpha.arguments import MAX_ELEMENTS, flag, number
from alpha.changes import Changes
from alpha.errors import ArgumentError
from alpha.nn.arguments import Size, choice, pair, positive, probability
from alpha.nn.layout import ImageLayer
from alpha.nn.module import LoadResult

Layers = Callable[..., nn.Module]
"""A class of layers, or a function that makes one."""


class ImageNetwork(ImageLayer):
    """Base of networks and blocks: they know the image layout in which they were made."""

    def __init__(self) -> None:
        super().__init__()
        self._set_layout(None)

    def _cat(self, maps: Sequence[Tensor]) -> Tensor:
        """Maps side by side along their channels."""
        return F.cat(maps, dim=self._channel_axis(4))

    def current_name(self, name: str) -> str:
        """The name that an entry of a state dict has now; torchvision's published files hold some older ones."""
        return name

    def stage_state(self, state_dict: Mapping[str, Any], changes: Changes, strict: bool = True) -> LoadResult:
        """As every module does, with entries under older names too."""
        if isinstance(state_dict, Mapping):
            state_dict = {self.current_name(name): value for name, value in state_dict.items()}
        return super().stage_state(state_dict, changes, strict)

    def _flattened_maps(self, **sizes: tuple[int, int]) -> dict[str, tuple[int, int]]:
        """Heights and widths of the maps that linear layers see flattened, which ``from_torch`` asks for.

        Args:
            sizes: by the layers' names, with underscores for dots.
        """
        names = {name.replace("_", "."): size for name, size in sizes.items()}
        return names if self.layout == "NHWC" else {}


class Conv2dNormActivation(nn.Sequential):
    """A convolution, a normalisation and an activation in a row.

    Args:
        in_channels, out_channels, kernel_size, stride, groups, dilation: the convolution's.
        padding: the convolution's; None for what keeps the size at stride 1.
        norm_layer: makes the normalisation from ``out_channels``; None for none.
        activation_layer: makes the activation; None for none.
        inplace: the activation's; None where it takes no such argument.
        bias: whether the convolution learns a bias; None for where no normalisation follows.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size = 3,
        stride: Size = 1,
        padding: Size | str | None = None,
        groups: int = 1,
        norm_layer: Layers | None = nn.BatchNorm2d,
        activation_layer: Layers | None = nn.ReLU,
        dilation: Size = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
    ) -> None:
        if padding is None:
            sizes = pair(kernel_size, "kernel_size", "Conv2dNormActivation")
            steps = pair(dilation, "dilation", "Conv2dNormActivation")
            padding = (sizes[0] - 1) // 2 * steps[0], (sizes[1] - 1) // 2 * steps[1]
        bias = norm_layer is None if bias is None else bias
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer() if inplace is None else activation_layer(inplace=inplace))
        super().__init__(*layers)
        self.out_channels = out_channels


class SqueezeExcitation(nn.Module):
    """Channels times factors that two 1x1 convolutions make of the channels' means. Hu et al., arXiv 1709.01507.

    Args:
        input_channels: channels of the input and of the result.
        squeeze_channels: channels between the two convolutions.
        activation: makes the activation between them.
        scale_activation: makes the one behind them.
    """

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Layers = nn.ReLU,
        scale_activation: Layers = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def forward(self, x: Tensor) -> Tensor:
        """Images to images of the same shape."""
        factors = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        scaled: Tensor = self.scale_activation(factors) * x
        return scaled


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """In training zeroes whole rows with probability p and divides the others by 1 - p. Huang et al., arXiv 1603.09382.

    Args:
        input: (N, ...).
        p: the probability.
        mode: ``"row"`` draws for each of the N rows, ``"batch"`` once for all.
        training: without it the input is the result.
    """
    p = number("stochastic_depth", "p", p)
    if not 0 <= p <= 1:
        raise ArgumentError(f"[stochastic_depth] expected p from 0 to 1, got {p}")
    rows = choice(mode, ("batch", "row"), "mode", "stochastic_depth") == "row"
    if not flag("stochastic_depth", "training", training) or p == 0:
        return input
    shape = (input.shape[0] if rows else 1, *[1] * (input.ndim - 1))
    return input * F.dropout(alpha.ones(shape, dtype=input.dtype, device=input.device), p, training=True)


class StochasticDepth(nn.Module):
    """``stochastic_depth`` as a layer."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p = probability(p, "p", "StochasticDepth")
        self.mode = choice(mode, ("batch", "row"), "mode", "StochasticDepth")

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return stochastic_depth(x, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"


class Permute(nn.Module):
    """A view with the axes in another order."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = tuple(dims)

    def forward(self, x: Tensor) -> Tensor:
        """Axes ``dims`` of x, in this order."""
        return x.permute(*self.dims)

    def extra_repr(self) -> str:
        return f"dims={self.dims}"


class MLP(nn.Sequential):
    """Linear layers, each with a normalisation, an activation and a dropout behind it; behind the last a dropout alone.

    Args:
        in_channels: length of the input's last axis.
        hidden_channels: that of each layer's result.
        norm_layer: makes the normalisation from a length; None for none.
        activation_layer: makes the activation.
        inplace: the activation's and the dropout's; None for what they have by default.
        bias: whether the layers learn a bias.
        dropout: the dropout's probability.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Sequence[int],
        norm_layer: Layers | None = None,
        activation_layer: Layers = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        for place, outputs in enumerate(hidden_channels):
            layers.append(nn.Linear(in_channels, outputs, bias=bias))
            if place < len(hidden_channels) - 1:
                layers += [] if norm_layer is None else [norm_layer(outputs)]
                layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            in_channels = outputs
        super().__init__(*layers)


def make_divisible(value: float, divisor: int, least: int | None = None) -> int:
    """The multiple of ``divisor`` nearest to a value, at least ``least``, and never below nine tenths of the value."""
    value = number("make_divisible", "a number of channels", value)
    if not 0 < value <= MAX_ELEMENTS:
        raise ArgumentError(
            f"[make_divisible] expected a positive number of channels, got {value}: give larger factors"
        )
    divisor = positive(divisor, "divisor", "make_divisible")
    nearest = max(least or divisor, int(value + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * value else nearest


def draw_weights(
    network: nn.Module,
    convolution: Callable[[Tensor], Any] | None,
    linear: Callable[[Tensor], Any] | None = None,
    zero_linear_bias: bool = True,
) -> None:
    """Draws the weights of all convolutions and linear layers anew, and sets their biases to 0.

    Args:
        network: its convolutions are Conv2d.
        convolution: writes into a convolution's weight; None leaves all convolutions as they are.
        linear: writes into a linear layer's weight; None leaves the weights as they are.
        zero_linear_bias: whether the biases of linear layers become 0.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and convolution is not None:
            convolution(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            if linear is not None:
                linear(module.weight)
            if zero_linear_bias and module.bias is not None:
                nn.init.zeros_(module.bias)


def fan_out_normal(weight: Tensor) -> Tensor:
    """Kaiming's normal distribution by the outputs, for a ReLU behind."""
    return nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu")


def narrow_normal(weight: Tensor) -> Tensor:
    """The normal distribution with the standard deviation 0.01."""
    return nn.init.normal_(weight, 0.0, 0.01)
