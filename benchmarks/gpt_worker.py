"""One side of the benchmark of a GPT block in a process of its own; the block itself is written once for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Setup
from benchmarks.sides import AlphaSide, TorchSide, time_call
from benchmarks.workers import serve

Array = np.ndarray[Any, Any]

RATE = 1e-3


class Sizes(NamedTuple):
    """Sizes of the block and of its input."""

    batch: int = 16
    tokens: int = 256
    embedding: int = 384
    heads: int = 6


def block_of(nn: Any, sizes: Sizes) -> Any:
    """A pre-norm transformer block with causal self-attention, of alpha.nn's or torch.nn's layers."""
    attend, width, heads = nn.functional.scaled_dot_product_attention, sizes.embedding, sizes.heads

    class Block(nn.Module):  # type: ignore[misc]
        """x + attention(norm(x)), then x + mlp(norm(x))."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU())
            self.down = nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            h = self.norm1(x)
            shape = (*x.shape[:2], heads, width // heads)
            q, k, v = (layer(h).reshape(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
            y = attend(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(tuple(x.shape)))
            return x + self.down(self.up(self.norm2(x)))

    return Block()


def weights(sizes: Sizes, seed: int) -> dict[str, Array]:
    """The block's parameters by name."""
    rng, width = np.random.default_rng(seed), sizes.embedding
    found: dict[str, Array] = {}
    for name, rows, columns in (
        *((layer, width, width) for layer in ("query", "key", "value", "out")),
        ("up.0", 4 * width, width),
        ("down", width, 4 * width),
    ):
        found[f"{name}.weight"] = rng.normal(0, columns**-0.5, (rows, columns))
        found[f"{name}.bias"] = rng.normal(0, 0.02, rows)
    for name in ("norm1", "norm2"):
        found[f"{name}.weight"], found[f"{name}.bias"] = rng.normal(1, 0.02, width), rng.normal(0, 0.02, width)
    return found


def data(sizes: Sizes, seed: int) -> tuple[Array, Array]:
    """The input and what the block is to give."""
    rng = np.random.default_rng((seed, 1))
    x, target = (rng.normal(size=(sizes.batch, sizes.tokens, sizes.embedding)) for _ in range(2))
    return x, target


def make_step(
    nn: Any, tensor: Callable[[Array], Any], block: Any, optimizer: Any, sizes: Sizes, seed: int
) -> Callable[[], Any]:
    """A training step, which returns the loss: the mean square difference from the target."""
    x, target = map(tensor, data(sizes, seed))

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(block(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


class _Side:
    """What the sides share."""

    clock: Any
    _step: Callable[[], Any]

    def loss(self) -> float:
        """Makes a step; its loss."""
        return float(self._step().item())

    def time(self) -> float:
        """Seconds of a step."""
        return time_call(self.clock, self._step)


class Alpha(_Side, AlphaSide):
    """Dragon-Alpha."""

    def __init__(self, setup: dict[str, Any]) -> None:
        AlphaSide.__init__(self, Setup(**setup))

    def prepare(self, sizes: Sizes, seed: int) -> None:
        """Makes the block, its optimizer and its data."""
        self._step = alpha_step(self.engine, Sizes(*sizes), seed, np.float32)


class Torch(_Side, TorchSide):
    """PyTorch."""

    def __init__(self, setup: dict[str, Any]) -> None:
        TorchSide.__init__(self, Setup(**setup))

    def prepare(self, sizes: Sizes, seed: int) -> None:
        """Makes the block, its optimizer and its data."""
        self._step = torch_step(self.device, Sizes(*sizes), seed, np.float32)


def alpha_step(engine: Any, sizes: Sizes, seed: int, dtype: Any) -> Callable[[], Any]:
    """Dragon-Alpha's step in a dtype."""
    from alpha import nn, optim

    def tensor(array: Array) -> Any:
        return engine.from_numpy(array.astype(dtype))

    block = block_of(nn, sizes).to(engine).to(dtype)
    block.load_state_dict({name: tensor(value) for name, value in weights(sizes, seed).items()})
    return make_step(nn, tensor, block, optim.AdamW(block.parameters(), lr=RATE), sizes, seed)


def torch_step(device: Any, sizes: Sizes, seed: int, dtype: Any) -> Callable[[], Any]:
    """PyTorch's step in a dtype, with its fused AdamW."""
    import torch

    def tensor(array: Array) -> Any:
        return torch.from_numpy(array.astype(dtype)).to(device)

    block = block_of(torch.nn, sizes).to(device, tensor(np.empty(0)).dtype)
    block.load_state_dict({name: tensor(value) for name, value in weights(sizes, seed).items()})
    optimizer = torch.optim.AdamW(block.parameters(), lr=RATE, fused=True)
    return make_step(torch.nn, tensor, block, optimizer, sizes, seed)


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
