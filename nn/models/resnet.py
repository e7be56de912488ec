"""ResNet18 and ResNet34: He et al., "Deep residual learning", arXiv 1512.03385, in two styles.

``"paper"``: the networks of the experiment of Zhang et al., arXiv 2306.15951 (Dragon-Alpha 1.1), with the head for
CIFAR-10 or the one for ILSVRC2012. LeakyReLU; a strided stem without max-pool; 3x3 convolutions in the shortcuts that
change shape; two linear layers with dropout before each. ``"torchvision"``: torchvision's topology and names, so that
its weights fit (``from_torch``).
"""

from __future__ import annotations

from dataclasses import dataclass

from alpha import Tensor, checkpoint, is_grad_enabled
from alpha.errors import ArgumentError
from alpha.nn import init
from alpha.nn.activation import LeakyReLU
from alpha.nn.arguments import choice, positive
from alpha.nn.containers import Sequential
from alpha.nn.conv import Conv2d
from alpha.nn.dropout import Dropout
from alpha.nn.fusion import conv_bn, conv_bn_waiting
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm2d
from alpha.nn.pooling import AdaptiveAvgPool2d, MaxPool2d
from alpha.nn.shape import Flatten, Identity
from alpha.nn.shortcuts import conv_bn_shortcut, shortcut_of


@dataclass(frozen=True)
class Stem:
    """The first convolution, and whether a 3x3 max-pool of stride 2 follows."""

    kernel_size: int
    stride: int
    pool: bool = False


@dataclass(frozen=True)
class Plan:
    """What tells one ResNet from another."""

    blocks: tuple[int, int, int, int]
    stem: Stem
    activation: str
    shortcut_kernel: int
    hidden: int  # width of the head's first linear layer, in units of the base width; 0 for a single layer


_PAPER_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (4, 4, 6, 3)}
_PAPER_HIDDEN = {"cifar10": {"resnet18": 2, "resnet34": 4}, "ilsvrc2012": {"resnet18": 8, "resnet34": 8}}
"""Width of the first linear layer by head and network, in units of the base width."""
_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
_STEMS = {"7x7": Stem(7, 2, pool=True), "3x3": Stem(3, 1)}


class BasicBlock(Module):
    """act(bn2(conv2(act(bn1(conv1(x))))) + shortcut(x)), two 3x3 convolutions."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, activation: str, shortcut_kernel: int, recompute: bool = False
    ) -> None:
        """``recompute``: whether backward computes the first convolution again."""
        super().__init__()
        self.activation, self.recompute = activation, recompute
        self.conv1 = Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = BatchNorm2d(outputs)
        self.conv2 = Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = BatchNorm2d(outputs)
        self.downsample: Sequential | None = None
        if stride != 1 or inputs != outputs:
            k = shortcut_kernel
            self.downsample = Sequential(
                Conv2d(inputs, outputs, k, stride, padding=k // 2, bias=False), BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, inputs) to (N, OH, OW, outputs)."""
        shortcut = shortcut_of(self.downsample, self.bn2, x)
        first = _recomputed if self.recompute else conv_bn_waiting
        y = first(self.conv1, self.bn1, x, activation=self.activation)
        return conv_bn_shortcut(self.conv2, self.bn2, y, shortcut, self.activation)

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"


class ResNet(Module):
    """Images (N, H, W, 3) to logits (N, num_classes)."""

    def __init__(self, plan: Plan, num_classes: int, base_width: int, dropout: float, recompute: bool = False) -> None:
        super().__init__()
        stem, widths = plan.stem, [base_width * 2**stage for stage in range(4)]
        self.activation, self.recompute = plan.activation, recompute
        self.conv1 = Conv2d(3, widths[0], stem.kernel_size, stem.stride, stem.kernel_size // 2, bias=False)
        self.bn1 = BatchNorm2d(widths[0])
        self.maxpool = MaxPool2d(3, 2, padding=1) if stem.pool else Identity()
        self.layer1 = _stage(plan, 0, widths[0], widths[0], recompute)
        self.layer2 = _stage(plan, 1, widths[0], widths[1], recompute)
        self.layer3 = _stage(plan, 2, widths[1], widths[2])
        self.layer4 = _stage(plan, 3, widths[2], widths[3])
        self.avgpool = AdaptiveAvgPool2d(1)
        self.flatten = Flatten()
        self.fc = _head(widths[3], plan.hidden * base_width, num_classes, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, 3) to (N, num_classes)."""
        first = _recomputed if self.recompute else conv_bn
        x = self.maxpool(first(self.conv1, self.bn1, x, activation=self.activation))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)  # no name holds an earlier stage's result
        return self.fc(self.flatten(self.avgpool(x)))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"


def resnet18(
    num_classes: int = 10,
    style: str = "paper",
    *,
    base_width: int = 64,
    dropout: float | None = None,
    stem: str | None = None,
    head: str | None = None,
    recompute: bool = False,
) -> ResNet:
    """ResNet18.

    The paper's has 12,619,722 parameters with CIFAR-10's head and 10 classes, 13,328,424 with ILSVRC2012's and 1000;
    torchvision's has 11,689,512 with 1000 classes.

    Args:
        num_classes: length of the result's last axis.
        style: ``"paper"`` or ``"torchvision"``.
        base_width: channels of the first stage; the others have 2, 4 and 8 times as many.
        dropout: the paper style's, 0.1 by default; 0 turns it off.
        stem: the torchvision style's, ``"7x7"`` (stride 2, then max-pool) or ``"3x3"`` (stride 1, no pool: for images
            of 32 x 32).
        head: the paper style's linear layers, ``"cifar10"`` (512-128-num_classes, the default) or ``"ilsvrc2012"``
            (512-512-num_classes); behind other base widths in proportion.
        recompute: compute the convolutions of the stem, and the first ones of the blocks of the first two stages, again
            in backward instead of keeping their results.
    """
    return _resnet("resnet18", num_classes, style, base_width, dropout, stem, head, recompute)


def resnet34(
    num_classes: int = 10,
    style: str = "paper",
    *,
    base_width: int = 64,
    dropout: float | None = None,
    stem: str | None = None,
    head: str | None = None,
    recompute: bool = False,
) -> ResNet:
    """ResNet34; arguments as for resnet18, but the head for CIFAR-10 is 512-256-num_classes.

    The paper's has 22,868,810 parameters with CIFAR-10's head and 10 classes, 23,510,568 with ILSVRC2012's and 1000;
    torchvision's has 21,797,672 with 1000 classes.
    """
    return _resnet("resnet34", num_classes, style, base_width, dropout, stem, head, recompute)


def _resnet(
    name: str,
    num_classes: int,
    style: str,
    base_width: int,
    dropout: float | None,
    stem: str | None,
    head: str | None,
    recompute: bool,
) -> ResNet:
    positive(num_classes, "num_classes", name)
    positive(base_width, "base_width", name)
    if choice(style, ("paper", "torchvision"), "style", name) == "paper":
        if stem is not None:
            raise ArgumentError(f'[{name}] expected no stem with style="paper", which has its own, got {stem!r}')
        hidden = _PAPER_HIDDEN[choice("cifar10" if head is None else head, tuple(_PAPER_HIDDEN), "head", name)][name]
        plan = Plan(_PAPER_BLOCKS[name], Stem(7, 2), "leaky_relu", 3, hidden)
        return ResNet(plan, num_classes, base_width, 0.1 if dropout is None else dropout, recompute)
    if dropout:
        raise ArgumentError(f'[{name}] expected no dropout with style="torchvision", which has none, got {dropout}')
    if head is not None:
        raise ArgumentError(f'[{name}] expected no head with style="torchvision", which has its own, got {head!r}')
    chosen = _STEMS[choice("7x7" if stem is None else stem, tuple(_STEMS), "stem", name)]
    net = ResNet(Plan(_BLOCKS[name], chosen, "relu", 1, hidden=0), num_classes, base_width, 0.0, recompute)
    for module in net.modules():
        if isinstance(module, Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def _head(inputs: int, hidden: int, num_classes: int, p: float) -> Module:
    if not hidden:
        return Linear(inputs, num_classes)
    return Sequential(Dropout(p), Linear(inputs, hidden), LeakyReLU(), Dropout(p), Linear(hidden, num_classes))


def _recomputed(conv: Conv2d, bn: BatchNorm2d, x: Tensor, activation: str) -> Tensor:
    """``conv_bn`` whose convolution is computed again in backward."""
    if not is_grad_enabled():
        return conv_bn(conv, bn, x, activation=activation)
    return bn(checkpoint(conv, x, preserve_rng_state=False, keep_result=False), activation=activation)  # type: ignore[no-any-return]


def _stage(plan: Plan, stage: int, inputs: int, outputs: int, recompute: bool = False) -> Sequential:
    """The blocks of one stage; the first takes the stride and the change of channels."""
    others = (plan.activation, plan.shortcut_kernel, recompute)
    first = BasicBlock(inputs, outputs, 2 if stage else 1, *others)
    rest = [BasicBlock(outputs, outputs, 1, *others) for _ in range(plan.blocks[stage] - 1)]
    return Sequential(first, *rest)
