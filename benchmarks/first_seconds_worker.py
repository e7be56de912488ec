"""A process whose first seconds are measured: imports, makes a network, takes two training steps, tells the times.

``first_seconds_worker.py NETWORK BATCH BEGIN THREADS``: BEGIN is ``time.time()`` as the process was started. It stands
alone, so that another checkout's ``alpha`` can be measured with it.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import numpy as np

import alpha
import alpha.nn.functional as F
from alpha import nn, optim
from alpha.nn import models

IMPORTED = time.time()

WORDS, TOKENS, WIDTH, HEADS = 64, 128, 192, 6
"""The GPT's vocabulary, the length of a text, the embedding's size, attention's heads."""


def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention, of operations where a checkout has no function for it."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    later = np.triu(np.full((TOKENS, TOKENS), -np.inf, np.float32), 1)
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1])) + alpha.tensor(later)
    return F.softmax(scores, -1) @ v


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        """The block's result for texts (N, TOKENS, WIDTH)."""
        h, shape = self.norm1(x), (x.shape[0], TOKENS, HEADS, WIDTH // HEADS)
        q, k, v = (layer(h).reshape(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        x = x + self.out(attention(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Two blocks between an embedding and a layer that tells the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words: Any) -> Any:
        """The logits of the words that follow words (N, TOKENS), (N * TOKENS, WORDS)."""
        return self.head(self.norm(self.blocks(self.embedding(words)))).reshape(-1, WORDS)


def made(network: str, batch: int) -> tuple[Any, Any, Any, Any]:
    """A network, its optimizer, a batch and its labels."""
    rng = np.random.default_rng(0)
    if network == "resnet18":
        net: Any = models.resnet18(num_classes=10)
        x, labels = alpha.tensor(rng.random((batch, 32, 32, 3), np.float32)), alpha.tensor(rng.integers(0, 10, batch))
        return net, optim.Adam(net.parameters()), x, labels
    net = GPT()
    words = rng.integers(0, WORDS, (batch, TOKENS + 1))
    x, labels = alpha.tensor(words[:, :-1].copy()), alpha.tensor(words[:, 1:].reshape(-1).copy())
    return net, optim.AdamW(net.parameters()), x, labels


def step(net: Any, optimizer: Any, x: Any, labels: Any) -> float:
    """A training step; returns its loss."""
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), labels)
    loss.backward()
    optimizer.step()
    return float(loss.item())


def main() -> None:
    """Prints seconds as JSON."""
    begin = float(sys.argv[3])
    alpha.engine("cpu").configure(threads=int(sys.argv[4]))
    parts = made(sys.argv[1], int(sys.argv[2]))
    ready = time.time()
    losses = [step(*parts)]
    first = time.time()
    losses.append(step(*parts))
    second = time.time()
    times = {"import": IMPORTED - begin, "first step": first - ready, "second step": second - first}
    print(json.dumps({**times, "until first step": first - begin, "losses": losses}))


if __name__ == "__main__":
    main()
