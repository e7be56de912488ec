"""Convolutions of sequences whose first axis is time."""

from __future__ import annotations

from alpha.arguments import whole
from alpha.errors import ShapeError
from alpha.functions.conv_nd import conv1d
from alpha.functions.operands import check_tensor
from alpha.functions.shape import permute
from alpha.tensor import Tensor

__all__ = ["conv_tbc"]


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """``conv1d`` of sequences (T, N, IC), in every image layout: (T + 2 pad - F + 1, N, OC).

    Args:
        input: (T, N, IC).
        weight: (F, IC, OC).
        bias: (OC,).
        pad: zeros before and behind each sequence.
    """
    check_tensor("conv_tbc", input, weight, bias)
    padding = whole("conv_tbc", "pad", pad, 0)
    fits = input.ndim == weight.ndim == 3 and bias.ndim == 1
    if not fits or input.shape[2] != weight.shape[1] or weight.shape[2:] != bias.shape:
        raise ShapeError(
            "[conv_tbc] expected an input (T, N, IC), a weight (F, IC, OC) and a bias (OC,), got "
            f"{input.shape}, {weight.shape} and {bias.shape}"
        )
    sequences, filters = permute(input, (1, 0, 2)), permute(weight, (2, 0, 1))
    return permute(conv1d(sequences, filters, bias, padding=padding, layout="NHWC"), (1, 0, 2))
