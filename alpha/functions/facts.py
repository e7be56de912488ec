"""What a tensor is: its size, its sign, whether it is one of the kinds that other frameworks have."""

from __future__ import annotations

from alpha import dtypes
from alpha.errors import ShapeError
from alpha.functions.operands import check_tensor
from alpha.tensor import Tensor

__all__ = ["is_inference", "is_neg", "is_nonzero", "is_same_size", "is_signed", "numel"]


def numel(input: Tensor) -> int:
    """The number of a tensor's elements."""
    check_tensor("numel", input)
    return input.numel()


def is_nonzero(input: Tensor) -> bool:
    """Whether a tensor's only element differs from 0; ShapeError where it has another number of elements."""
    check_tensor("is_nonzero", input)
    if input.numel() != 1:
        raise ShapeError(f"[is_nonzero] expected a tensor of one element, got shape {input.shape}: index it first")
    return bool(input.item())


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    check_tensor("is_same_size", input, other)
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """Whether a tensor's dtype has numbers below 0."""
    check_tensor("is_signed", input)
    kind = input.dtype
    return dtypes.is_float(kind) or dtypes.is_complex(kind) or dtypes.limits(kind)[0] < 0


def is_neg(input: Tensor) -> bool:
    """False: signs are changed at once, none is noted for later."""
    check_tensor("is_neg", input)
    return False


def is_inference(input: Tensor) -> bool:
    """False: what ``inference_mode`` makes are ordinary tensors, which a graph may take later."""
    check_tensor("is_inference", input)
    return False
