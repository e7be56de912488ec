"""What is ours under another name, and which of PyTorch's samples are not compared or are refused, with reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import alpha

SPECIAL: dict[str, Callable[..., Any]] = {
    "linalg.lstsq.grad_oriented": lambda a, b, **options: alpha.linalg.lstsq(a, b, **options)[:2],
    "linalg.pinv.singular": lambda a, b: alpha.linalg.pinv(a @ b.transpose(-1, -2)),
}
"""Our function of an operation, or of "operation.variant", where its name does not tell."""

_RANDOM = "draws random numbers, which are others than PyTorch's; tests of their distribution hold them"
NOT_COMPARED: dict[str, str] = {
    **dict.fromkeys(
        (
            "bernoulli", "empty", "empty_like", "multinomial", "new_empty", "nn.functional.dropout", "normal", "rand",
            "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform",
        ),
        _RANDOM,
    ),
}  # fmt: skip
"""Operations that are not tried, and why."""

REFUSED: dict[str, str] = {}
"""Operations of which some samples end in an error of ours, and why."""
