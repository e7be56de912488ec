"""One side of the benchmark of small programs in a process of its own; the networks are written once for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Setup
from benchmarks.sides import AlphaSide, TorchSide, time_call
from benchmarks.workers import serve

Array = np.ndarray[Any, Any]

RATE = 1e-3
CLASSES = 10


class Program(NamedTuple):
    """A network and what it is trained on.

    Attributes:
        make: the network, of a package's ``nn`` (``alpha.nn`` or ``torch.nn``).
        data: the input and the target of a batch, from a generator.
        loss: of the package's functions, the network's result and the target.
        batch: its size unless told otherwise.
    """

    make: Callable[[Any, Any], Any]
    data: Callable[[np.random.Generator, int], tuple[Array, Array]]
    loss: Callable[[Any, Any, Any], Any]
    batch: int


# -- a character model ---------------------------------------------------------------------------------------------


def gpt(library: Any, nn: Any) -> Any:
    """A character model of 6 pre-norm blocks: 96 tokens, embedding 192, 6 heads; 2.7 million parameters."""
    tokens, width, heads, vocabulary = 96, 192, 6, 65

    class Block(nn.Module):  # type: ignore[misc]
        """x + attention(norm(x)), then x + mlp(norm(x)); one product for queries, keys and values."""

        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            parts = self.c_attn(self.ln_1(x)).split(c, dim=2)
            q, k, v = (part.view(b, t, heads, c // heads).transpose(1, 2) for part in parts)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.ln_2(x))

    class Model(nn.Module):  # type: ignore[misc]
        """Token and position embeddings, blocks, a linear layer to the vocabulary."""

        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(6)])
            self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, index: Any) -> Any:
            place = library.arange(index.size(1))
            return self.head(self.ln_f(self.blocks(self.wte(index) + self.wpe(place))))

    return Model()


def _text(rng: np.random.Generator, batch: int) -> tuple[Array, Array]:
    text = rng.integers(0, 65, (batch, 97))
    return text[:, :-1].copy(), text[:, 1:].copy()


# -- images to images ----------------------------------------------------------------------------------------------


def unet(library: Any, nn: Any) -> Any:
    """A U-Net of three levels from 32 channels on, for one map of 64x64; 1.9 million parameters."""

    def double(before: int, after: int) -> Any:
        layers = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    class Model(nn.Module):  # type: ignore[misc]
        """Down by max pooling, up by transposed convolutions, joined with what was on the way down."""

        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([double(3, 32), double(32, 64), double(64, 128)])
            self.pool, self.bottom = nn.MaxPool2d(2), double(128, 256)
            self.up = nn.ModuleList([nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in (128, 64, 32)])
            self.join = nn.ModuleList([double(2 * c, c) for c in (128, 64, 32)])
            self.last = nn.Conv2d(32, 1, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for layer in self.down:
                x = layer(x)
                kept.append(x)
                x = self.pool(x)
            x = self.bottom(x)
            for up, join, other in zip(self.up, self.join, reversed(kept), strict=True):
                x = join(library.cat([other, up(x)], dim=1))
            return self.last(x)

    return Model()


def _masks(rng: np.random.Generator, batch: int) -> tuple[Array, Array]:
    images = rng.standard_normal((batch, 3, 64, 64), np.float32)
    return images, (images.mean(1, keepdims=True) > 0).astype(np.float32)


# -- images to classes ---------------------------------------------------------------------------------------------


def convnext(library: Any, nn: Any) -> Any:
    """A ConvNeXt of depths 2, 2, 6, 2 and widths 48 to 384, for images of 64x64; 6.5 million parameters."""
    depths, widths = (2, 2, 6, 2), (48, 96, 192, 384)

    class Norm(nn.Module):  # type: ignore[misc]
        """LayerNorm over the channels of (N, C, H, W)."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(channels, eps=1e-6)

        def forward(self, x: Any) -> Any:
            return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Block(nn.Module):  # type: ignore[misc]
        """A depthwise 7x7 convolution, then two linear layers a pixel, scaled, added."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
            self.norm = nn.LayerNorm(channels, eps=1e-6)
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
            self.act, self.gamma = nn.GELU(), nn.Parameter(0.1 * library.ones(channels))

        def forward(self, x: Any) -> Any:
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.gamma * self.down(self.act(self.up(y)))
            return x + y.permute(0, 3, 1, 2)

    layers: list[Any] = [nn.Conv2d(3, widths[0], 4, stride=4), Norm(widths[0])]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage:
            layers += [Norm(widths[stage - 1]), nn.Conv2d(widths[stage - 1], width, 2, stride=2)]
        layers += [Block(width) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))


def _pictures(rng: np.random.Generator, batch: int) -> tuple[Array, Array]:
    return rng.standard_normal((batch, 3, 64, 64), np.float32), rng.integers(0, CLASSES, batch)


# -- sequences to classes ------------------------------------------------------------------------------------------


def lstm(library: Any, nn: Any) -> Any:
    """A classifier of 64 tokens: embedding 128, two bidirectional LSTM layers of 128; 0.8 million parameters."""

    class Model(nn.Module):  # type: ignore[misc]
        """The mean of the last layer's outputs, and a linear layer."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(1000, 128)
            self.lstm = nn.LSTM(128, 128, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(256, CLASSES)

        def forward(self, index: Any) -> Any:
            output, _ = self.lstm(self.embedding(index))
            return self.head(output.mean(1))

    return Model()


def _sequences(rng: np.random.Generator, batch: int) -> tuple[Array, Array]:
    return rng.integers(0, 1000, (batch, 64)), rng.integers(0, CLASSES, batch)


def _next_token(functional: Any, found: Any, target: Any) -> Any:
    return functional.cross_entropy(found.reshape(-1, found.shape[-1]), target.reshape(-1))


def _classes(functional: Any, found: Any, target: Any) -> Any:
    return functional.cross_entropy(found, target)


def _pixels(functional: Any, found: Any, target: Any) -> Any:
    return functional.binary_cross_entropy_with_logits(found, target)


PROGRAMS = {
    "gpt": Program(gpt, _text, _next_token, 16),
    "unet": Program(unet, _masks, _pixels, 8),
    "convnext": Program(convnext, _pictures, _classes, 16),
    "lstm": Program(lstm, _sequences, _classes, 32),
}


# -- the sides -----------------------------------------------------------------------------------------------------


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


def _stepping(nn: Any, program: Program, net: Any, optimizer: Any, x: Any, target: Any) -> Callable[[], Any]:
    def step() -> Any:
        optimizer.zero_grad()
        loss = program.loss(nn.functional, net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


class Torch(_Side, TorchSide):
    """PyTorch, with its fused AdamW."""

    def __init__(self, setup: dict[str, Any]) -> None:
        TorchSide.__init__(self, Setup(**setup))

    def prepare(self, name: str, batch: int, seed: int, weights: str, channels_last: bool) -> None:
        """Makes the network, its optimizer and its data."""
        import torch

        program = PROGRAMS[name]
        net = program.make(torch, torch.nn)
        with np.load(weights) as arrays:
            net.load_state_dict({key: torch.from_numpy(arrays[key]) for key in arrays.files})
        x, target = map(torch.from_numpy, program.data(np.random.default_rng(seed), batch))
        if channels_last:
            net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, fused=True)
        self._step = _stepping(torch.nn, program, net.train(), optimizer, x, target)


class Alpha(_Side, AlphaSide):
    """Dragon-Alpha, in PyTorch's layout of images."""

    def __init__(self, setup: dict[str, Any]) -> None:
        AlphaSide.__init__(self, Setup(**setup))

    def write_weights(self, name: str, seed: int, weights: str) -> None:
        """Writes initial weights, in PyTorch's layout, to a file."""
        import alpha
        from alpha import nn

        alpha.manual_seed(seed)
        with alpha.set_image_layout("NCHW"):
            state = PROGRAMS[name].make(alpha, nn).state_dict()
        arrays: dict[str, Any] = {key: np.array(value) for key, value in state.items()}
        np.savez(weights, **arrays)

    def prepare(self, name: str, batch: int, seed: int, weights: str, channels_last: bool) -> None:
        """Makes the network, its optimizer and its data."""
        import alpha
        from alpha import nn, optim

        alpha.set_image_layout("NCHW")
        program = PROGRAMS[name]
        net = program.make(alpha, nn)
        with np.load(weights) as arrays:
            net.load_state_dict({key: alpha.tensor(arrays[key]) for key in arrays.files})
        x, target = map(alpha.tensor, program.data(np.random.default_rng(seed), batch))
        optimizer = optim.AdamW(net.parameters(), lr=RATE)
        self._step = _stepping(nn, program, net.train(), optimizer, x, target)


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
