"""What is ours under another name, and which of PyTorch's samples are not compared or are refused, with reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import alpha
import alpha.nn.functional as F

SPECIAL: dict[str, Callable[..., Any]] = {
    "linalg.lstsq.grad_oriented": lambda a, b, **options: alpha.linalg.lstsq(a, b, **options)[:2],
    "linalg.pinv.singular": lambda a, b: alpha.linalg.pinv(a @ b.transpose(-1, -2)),
    "pca_lowrank": lambda a, b, **options: alpha.pca_lowrank(a @ b.transpose(-1, -2), **options),
    "svd_lowrank": lambda a, b, **options: alpha.svd_lowrank(a @ b.transpose(-1, -2), **options),
    "_segment_reduce": alpha.segment_reduce,
    "einsum": lambda operands, equation: alpha.einsum(equation, *operands),
    "nn.functional.embedding": lambda weight, index, **options: F.embedding(index, weight, **options),
    "nn.functional.embedding_bag": lambda weight, index, **options: F.embedding_bag(index, weight, **options),
    "polygamma": lambda x, n: alpha.polygamma(n, x),
    "special.polygamma": lambda x, n: alpha.special.polygamma(n, x),
    "where": lambda x, condition, other: alpha.where(condition, x, other),
    "zero_": lambda x: x.clone().zero_(),
}
"""Our function of an operation, or of "operation.variant", where its name does not tell."""

_RANDOM = "draws random numbers, which are others than PyTorch's; tests of their distribution hold them"
_STORAGE = "its samples are views, whose storage the arguments on our side do not have"
NOT_COMPARED: dict[str, str] = {
    **dict.fromkeys(
        (
            "bernoulli", "empty", "empty_like", "multinomial", "new_empty", "nn.functional.dropout", "normal", "rand",
            "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "nn.functional.rrelu",
            "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
            "nn.functional.gumbel_softmax", "normal.in_place", "nn.functional.multi_head_attention_forward",
        ),
        _RANDOM,
    ),
    **dict.fromkeys(("empty_permuted", "empty_strided", "new_empty_strided"), "its results are uninitialised"),
    "as_strided.partial_views": _STORAGE,
    "bfloat16": "NumPy does not take PyTorch's bfloat16",
    "as_strided_scatter": "PyTorch's gradient of the input is not 0 where it is overwritten",
    "cov": "PyTorch computes with its samples' float32 weights, and is off by float32's rounding",
    "linalg.norm.subgradients_at_zero": "a norm has no second derivative where it is 0",
    "logcumsumexp.float32": "at 10000 PyTorch's gradient is off by 1e-3, and its second by more; float64 is tried",
    **dict.fromkeys(
        [f"special.{name}.float64" for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")],
        "PyTorch's float64 is off by up to 8e-7, as mpmath shows; float32 is tried",
    ),
    **dict.fromkeys(
        ("pca_lowrank.complex128", "svd_lowrank.complex128"),
        "their second gradients depend on what the drawn vectors leave of small singular values; float64 is tried",
    ),
    "nn.functional.hardsigmoid": "PyTorch's gradient in float64 is a float32 sixth",
    "nn.functional.layer_norm.float32": "one value has no deviation, so rounding is all there is; float64 is tried",
    "nn.functional.triplet_margin_with_distance_loss": "its samples have a module of PyTorch's",
}  # fmt: skip
"""Operations, "operation.variant" or "operation.dtype", that are not tried, and why."""


def is_random(operation: Any, sample: Any) -> bool:
    """Whether a sample's result depends on numbers drawn at random, others than PyTorch draws."""
    options = sample.kwargs
    if operation.name == "svd_lowrank":  # of a matrix whose rank is above q
        return options["M"] is not None
    if "dropout" in operation.name:
        return bool(options.get("training", True)) and 0 < options.get("p", 0.5) < 1
    return 0 < options.get("dropout_p", 0.0) < 1


REFUSED: dict[str, str] = {
    "histogramdd": "some samples have edges that do not ascend",
    "nn.functional.batch_norm": "a tensor without channels is taken for a mistake",
    "nn.functional.cosine_similarity": "tensors without axes have no vectors",
    "nn.functional.multi_margin_loss": "tensors without axes have no classes",
}
"""Operations of which some samples end in an error of ours, and why."""

WITHOUT_COMPLEX = (
    "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve", "logaddexp", "logcumsumexp",
    "nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d", "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d", "nn.functional.feature_alpha_dropout",
    "nn.functional.rms_norm", "nn.functional.triplet_margin_loss", "nn.functional.unfold",
)  # fmt: skip
"""Operations that PyTorch has of complex numbers, and we of floats alone: they raise DtypeError."""
