"""How precisely float32 products are computed: a setting of the process that engines read."""

from __future__ import annotations

from alpha.errors import ArgumentError, described
from alpha.launches import LINEAR, MATMUL

_CHOICES = ("ieee", "highest", "high", "medium")
_chosen = "highest"


def set_float32_precision(precision: str) -> None:
    """Sets how convolutions and matrix products of float32 tensors are computed, from the next call on.

    Args:
        precision: "highest", the default: in float32. Where sums are long, the CUDA engine may make a product of three
            on the tensor cores, if results are as near to the exact ones. "ieee": each product exact, and each sum
            rounded, as IEEE 754 says. "high": the CUDA engine may round factors to TF32 (10 bits of mantissa) and use
            tensor cores, accumulating in float32. The CPU engine computes in float32 in all three cases. "medium": the
            CPU engine may round factors to bfloat16 (7 bits of mantissa), accumulating in float32, where that is faster
            (``alpha.cpu.explain`` says for which); the CUDA engine computes as for "high", which is more exact.

    "highest", "high" and "medium" are PyTorch's names. ArgumentError for anything else.
    """
    global _chosen
    if not isinstance(precision, str) or precision not in _CHOICES:
        raise ArgumentError(
            f'[set_float32_precision] expected "ieee", "highest", "high" or "medium", got {described(precision)}: '
            "choose one"
        )
    if precision != _chosen:
        _chosen = precision
        for products in (MATMUL, LINEAR):  # what they know of earlier calls was found for another precision
            products.forget()


def get_float32_precision() -> str:
    """What ``set_float32_precision`` set: "ieee", "highest", "high" or "medium"."""
    return _chosen
