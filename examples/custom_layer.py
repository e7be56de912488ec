"""A layer and a differentiable function of one's own: Swish with a learned slope, checked, then trained on digits."""

from __future__ import annotations

from collections.abc import Sequence

import common
import numpy as np

import alpha
from alpha import Tensor, datasets, nn, optim
from alpha.testing import gradcheck


class SwishFunction(alpha.Function):
    """y = x * sigmoid(b * x). Ramachandran et al., arXiv 1710.05941.

    x has any shape, b has one element. dy/dx = s + b * x * s * (1 - s) and dy/db = x^2 * s * (1 - s), s = sigmoid(b x).
    """

    def forward(self, x: Tensor, b: Tensor) -> Tensor:
        self.save(x, b)
        return x * (b * x).sigmoid()

    def backward(self, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, b = self.saved
        s = (b * x).sigmoid()
        slope = x * s * (1 - s)
        # Only what is asked for: ``needs`` has an entry for each argument of forward.
        grad_x = grad * (s + b * slope) if self.needs[0] else None
        grad_b = (grad * x * slope).sum().reshape(b.shape) if self.needs[1] else None
        return grad_x, grad_b


class Swish(nn.Module):
    """The layer: SwishFunction with a slope that is learned, because it is a Parameter."""

    def __init__(self, slope: float = 1.0) -> None:
        super().__init__()
        self.slope = nn.Parameter(alpha.tensor(np.array([slope], np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        return SwishFunction.apply(x, self.slope)  # type: ignore[no-any-return]


def check_gradients() -> None:
    """Holds backward against differences of forward in float64; an error, with both gradients, if they differ."""
    x = alpha.tensor(np.random.default_rng(0).normal(size=(4, 5)), requires_grad=True)
    b = alpha.tensor(np.array([1.3]), requires_grad=True)
    gradcheck(SwishFunction.apply, x, b)
    print("gradcheck: SwishFunction's gradients are those of its values")


def make_network() -> nn.Sequential:
    """Digits (N, 8, 8, 1) to logits (N, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        Swish(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        Swish(),
        nn.Flatten(),
        nn.Linear(4 * 4 * 32, 10),
    )


def train(net: nn.Module, epochs: int) -> None:
    """A few epochs of Adam."""
    data = datasets.Digits(size=8, channels=1)
    optimizer = optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(epochs):
        losses = []
        for x, y in datasets.DataLoader(data, batch_size=64, shuffle=True, seed=epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}/{epochs}: loss {np.mean(losses):.4f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Checks, trains and tests; returns the exit code."""
    parser = common.Parser(__doc__ or "")
    parser.add_argument("--epochs", metavar="N", type=common.positive_int, default=5, help="(default: 5)")
    parser.add_engine()
    options = parser.parse_args(argv)
    common.use_engine(vars(options))
    alpha.manual_seed(0)
    check_gradients()
    net = make_network().train()
    train(net, options.epochs)
    slopes = [layer.slope.item() for layer in net.modules() if isinstance(layer, Swish)]
    print(f"learned slopes: {', '.join(f'{slope:.3f}' for slope in slopes)}")
    common.print_accuracy(*common.test(net, datasets.Digits(train=False, size=8, channels=1), 64))
    return 0


if __name__ == "__main__":
    common.run(main)
