"""Layers that turn numbers into learned vectors: Embedding, and EmbeddingBag, which sums them up."""

from __future__ import annotations

from typing import Any, Self

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag, number, whole
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError, DtypeError, ShapeError
from alpha.nn import init
from alpha.nn.arguments import choice, positive
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import Device, empty_parameter, placed


class _Table(Module):
    """Base of the layers: a table of vectors ``weight`` (num_embeddings, embedding_dim), at first standard normal."""

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Tensor | None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.num_embeddings = positive(num_embeddings, "num_embeddings", name)
        self.embedding_dim = positive(embedding_dim, "embedding_dim", name)
        rows = self.num_embeddings
        if padding_idx is not None:
            padding_idx = whole(name, "padding_idx", padding_idx)
            if not -rows <= padding_idx < rows:
                raise ArgumentError(f"[{name}] expected padding_idx within {rows} rows, got {padding_idx}")
        if flag(name, "sparse", sparse):
            raise ArgumentError(f"[{name}] expected sparse=False, got True: gradients are dense here")
        self.sparse = False
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        self.max_norm = None if max_norm is None else number(name, "max_norm", max_norm)
        self.norm_type = number(name, "norm_type", norm_type)
        self.scale_grad_by_freq = flag(name, "scale_grad_by_freq", scale_grad_by_freq)
        if weight is not None:
            if not isinstance(weight, Tensor):
                raise DtypeError(f"[{name}] expected a tensor as _weight, got {type(weight).__name__}")
            if weight.shape != (rows, self.embedding_dim):
                raise ShapeError(f"[{name}] expected a weight {(rows, self.embedding_dim)}, got {weight.shape}")
            self.weight = Parameter(weight)
            return
        self.weight = empty_parameter(rows, self.embedding_dim)
        self.reset_parameters()

    @classmethod
    def _pretrained(cls, embeddings: Tensor, freeze: bool, **options: Any) -> Self:
        """A layer with a table that is given, (num_embeddings, embedding_dim); ``freeze``: it takes no gradient."""
        if not isinstance(embeddings, Tensor) or embeddings.ndim != 2:
            raise ShapeError(f"[{cls.__name__}] expected embeddings (rows, columns), got {type(embeddings).__name__}")
        make: Any = cls
        layer: Self = make(*embeddings.shape, _weight=embeddings, **options)
        layer.weight.requires_grad_(not flag(cls.__name__, "freeze", freeze))
        return layer

    def reset_parameters(self) -> None:
        """Draws the weight standard normal, and sets the padding's row to 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [] if self.padding_idx is None else [f"padding_idx={self.padding_idx}"]
        parts += [] if self.max_norm is None else [f"max_norm={self.max_norm}"]
        return ", ".join(parts)


class Embedding(_Table):
    """A table of vectors, looked up by integers in 0..num_embeddings-1.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: length of a vector.
        padding_idx: a row that starts at zero and gets no gradient; negative counts from the end.
        max_norm, norm_type, scale_grad_by_freq, sparse: as for ``functional.embedding``.
        _weight: the table to begin with.
        _freeze: whether it takes no gradient.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    @placed
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        limits = (max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, padding_idx, *limits, _weight)
        self.weight.requires_grad_(not flag("Embedding", "_freeze", _freeze))

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """A layer with a table that is given, (num_embeddings, embedding_dim); ``freeze``: it takes no gradient."""
        return cls._pretrained(
            embeddings,
            freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Integers of any shape to (..., embedding_dim)."""
        limits = (self.max_norm, self.norm_type, self.scale_grad_by_freq)
        return F.embedding(x, self.weight, self.padding_idx, *limits)


class EmbeddingBag(_Table):
    """Sums, means or maxima of vectors of a table; arguments as for ``Embedding`` and ``functional.embedding_bag``."""

    @placed
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        self.mode = choice(mode, ("sum", "mean", "max"), "mode", "EmbeddingBag")
        self.include_last_offset = flag("EmbeddingBag", "include_last_offset", include_last_offset)
        limits = (max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, padding_idx, *limits, _weight)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """A layer with a table that is given, (num_embeddings, embedding_dim); ``freeze``: it takes no gradient."""
        return cls._pretrained(
            embeddings,
            freeze,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Integers (bags, length), or (count,) with offsets, to (bags, embedding_dim)."""
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"
