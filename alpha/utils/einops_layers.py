"""einops' layers for ``alpha.nn``, in the place of ``einops.layers.torch``: ``Rearrange``, ``Reduce``, ``EinMix``."""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

import alpha
from alpha import Tensor, nn

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Rearrange(RearrangeMixin, nn.Module):  # type: ignore[misc]
    """``einops.rearrange`` as a layer: ``Rearrange("b c h w -> b (h w) c")``; lengths of axes by name."""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor to another one of the pattern's form."""
        return self._apply_recipe(input)  # type: ignore[no-any-return]


class Reduce(ReduceMixin, nn.Module):  # type: ignore[misc]
    """``einops.reduce`` as a layer: ``Reduce("b c h w -> b c", "mean")``."""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor to another one of the pattern's form."""
        return self._apply_recipe(input)  # type: ignore[no-any-return]


class EinMix(_EinmixMixin, nn.Module):  # type: ignore[misc]
    """A linear layer over named axes: ``EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=3, d=4)``."""

    def _create_parameters(self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float) -> None:
        self.weight = nn.Parameter(alpha.empty(tuple(weight_shape)).uniform_(-weight_bound, weight_bound))
        drawn = None if bias_shape is None else alpha.empty(tuple(bias_shape)).uniform_(-bias_bound, bias_bound)
        self.bias = None if drawn is None else nn.Parameter(drawn)

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: dict[str, int] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: dict[str, int] | None,
    ) -> None:
        make: Any = Rearrange

        def layer(pattern: str | None, lengths: dict[str, int] | None) -> Rearrange | None:
            return None if pattern is None else make(pattern, **(lengths or {}))

        self.pre_rearrange = layer(pre_reshape_pattern, pre_reshape_lengths)
        self.post_rearrange = layer(post_reshape_pattern, post_reshape_lengths)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the pattern's left side to one of its right side."""
        x = input if self.pre_rearrange is None else self.pre_rearrange(input)
        x = alpha.einsum(self.einsum_pattern, x, self.weight)
        x = x if self.bias is None else x + self.bias
        return x if self.post_rearrange is None else self.post_rearrange(x)  # type: ignore[no-any-return]
