"""Embedding: the layer that turns numbers into learned vectors."""

from __future__ import annotations

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import whole
from alpha.errors import ArgumentError
from alpha.nn import init
from alpha.nn.arguments import empty_parameter, positive
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter


class Embedding(Module):
    """A table of vectors, looked up by integers in 0..num_embeddings-1.

    ``weight`` is (num_embeddings, embedding_dim), at first standard normal.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: length of a vector.
        padding_idx: a row that starts at zero and gets no gradient; negative counts from the end.
    """

    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> None:
        super().__init__()
        self.num_embeddings = positive(num_embeddings, "num_embeddings", "Embedding")
        self.embedding_dim = positive(embedding_dim, "embedding_dim", "Embedding")
        rows = self.num_embeddings
        if padding_idx is not None:
            padding_idx = whole("Embedding", "padding_idx", padding_idx)
            if not -rows <= padding_idx < rows:
                raise ArgumentError(f"[Embedding] expected padding_idx within {rows} rows, got {padding_idx}")
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        self.weight = empty_parameter(rows, self.embedding_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight standard normal, and sets the padding's row to 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, x: Tensor) -> Tensor:
        """Integers of any shape to (..., embedding_dim)."""
        return F.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
