"""Parametrizations that PyTorch has: weight normalisation and spectral normalisation."""

from __future__ import annotations

from typing import TypeVar

from alpha import Tensor, random
from alpha import functions as F
from alpha.autograd import no_grad
from alpha.nn.arguments import positive, text
from alpha.nn.module import Module
from alpha.nn.utils.arguments import check_module, parameter_of, positive_number
from alpha.nn.utils.parametrize import is_parametrized, register_parametrization
from alpha.nn.utils.spectral import SpectralNorm, axes_with_first, matrix_axes
from alpha.nn.utils.weight_norm import checked_dim, lengths

__all__ = ["spectral_norm", "weight_norm"]

Layer = TypeVar("Layer", bound=Module)

_FIRST_ITERATIONS = 15
"""Steps of power iteration with which a spectral norm begins."""


class _WeightNorm(Module):
    """v * g / |v|; its inverse gives g and v."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """The weight of lengths and directions."""
        result: Tensor = weight_v * (weight_g / lengths(weight_v, self.dim))
        return result

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Lengths and directions of a weight."""
        return lengths(weight, self.dim), weight.clone()


def weight_norm(module: Layer, name: str = "weight", dim: int | None = 0) -> Layer:
    """Trains a weight as lengths, ``parametrizations.<name>.original0``, and directions, ``original1``.

    ``dim``: the axis along which each entry has a length of its own; None for one length of all. Returns the module.
    """
    dim = checked_dim("weight_norm", dim, _weight("weight_norm", module, name))
    register_parametrization(module, name, _WeightNorm(dim))
    return module


class _SpectralNorm(Module):
    """The weight over its largest singular value, which power iteration finds: with u and v that count as constants."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, axes: tuple[int, ...], n_power_iterations: int, eps: float) -> None:
        super().__init__()
        self._norm, self._axes = SpectralNorm("weight", n_power_iterations, eps), axes
        if weight.ndim > 1:
            matrix = self._matrix(weight)
            for name, length in zip(("_u", "_v"), matrix.shape, strict=True):
                draw = weight.engine.random(random.draw_normal((length,), dtype=weight.dtype))
                self.register_buffer(name, self._norm.unit(draw))
            self._iterate(matrix, _FIRST_ITERATIONS)

    def _matrix(self, weight: Tensor) -> Tensor:
        rows = weight.permute(self._axes)
        return rows.reshape(rows.shape[0], -1)

    @no_grad()
    def _iterate(self, matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Better u and v, also put into the buffers: the graph of an earlier forward still needs what it saved."""
        u, v = self._u, self._v
        for _ in range(count):
            u = self._norm.unit(F.matmul(matrix, v))
            v = self._norm.unit(F.matmul(matrix.T, u))
        self._u.copy_(u)
        self._v.copy_(v)
        return u, v

    def forward(self, weight: Tensor) -> Tensor:
        """The weight to the one with norm 1; in training u and v are improved first."""
        if weight.ndim == 1:
            return self._norm.unit(weight)
        matrix = self._matrix(weight)
        u, v = self._u, self._v
        if self.training:
            u, v = self._iterate(matrix.detach(), self._norm.n_power_iterations)
        result: Tensor = weight / F.dot(u, F.matmul(matrix, v))
        return result

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself: it may well have the norm 1 already."""
        return value


def spectral_norm(
    module: Layer, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Layer:
    """Divides a weight by its largest singular value whenever it is read; returns the module.

    Args:
        module: a Linear, a convolution or another module with such a weight, trained as
            ``parametrizations.<name>.original``.
        name: the weight's.
        n_power_iterations: steps of power iteration whenever it is read in training.
        eps: least norm that a vector is divided by.
        dim: the axis of the result's channels; by default that of the layer.
    """
    weight = _weight("spectral_norm", module, name)
    positive(n_power_iterations, "n_power_iterations", "spectral_norm")
    eps = positive_number("spectral_norm", "eps", eps)
    axes = matrix_axes(module, weight) if dim is None or weight.ndim < 2 else axes_with_first(weight, dim)
    register_parametrization(module, name, _SpectralNorm(weight.detach(), axes, n_power_iterations, eps))
    return module


def _weight(function: str, module: Module, name: str) -> Tensor:
    """The weight, which may have parametrizations already."""
    check_module(function, module)
    if is_parametrized(module, text(name, "name", function)):
        weight: Tensor = getattr(module, name)
        return weight
    return parameter_of(function, module, name)
