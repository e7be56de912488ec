"""What the campaign knows of one public function: how arguments are drawn, and what must come out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import alpha
from alpha import nn, optim
from tests.robustness.cases import Case, Draw
from tests.robustness.compare import POINTWISE, Tolerance

NAMESPACE = {"alpha": alpha, "nn": nn, "optim": optim, "operator": operator, "np": np}
"""What a record's name, and the reproducers, are evaluated in."""


@dataclass
class Record:
    """One public function.

    Attributes:
        name: how it is called, as Python source that begins with alpha, nn, optim or operator.
        draw: makes the arguments of a call.
        oracle: the same call on NumPy arrays, floats in float64, from the definition; None where a result cannot be
            foretold and ``check`` says what must hold. It writes to its arguments where the function does.
        peer: the same call on PyTorch tensors: ``peer(torch, *args, **options)``; None where PyTorch has no such.
        tolerance: how far floats may be off.
        gradient: whether gradients are compared.
        meets: whether the arguments are first converted to one common dtype, as in arithmetic.
        call: the function, where it is not what the name says.
        check: called with (result, case) where there is no oracle; returns what is wrong, or None.
        returned: whether results are compared beside what was written in place.
        result: dtype of a float result, where the arguments' dtypes do not tell.
        differences: whether the gradient is that of the oracle, so that its differences can be compared with it.
        solves: whether squares or products are summed on the way, which leave float32 where the arguments are beyond
            1e9 or below 1e-9: such results are then not compared.
        skips: whether zeros are not multiplied, so that they do not make NaN of an infinity: where NaN is expected
            nothing is compared.
        weight: how often it is drawn, relative to others.
        covers: other public names that this record tries.
    """

    name: str
    draw: Callable[[Draw], Case]
    oracle: Callable[..., Any] | None
    peer: Callable[..., Any] | None = None
    tolerance: Tolerance = POINTWISE
    gradient: bool = True
    meets: bool = False
    call: Callable[..., Any] | None = None
    check: Callable[[Any, Case], str | None] | None = None
    returned: bool = False
    result: Callable[[Case], str | None] | None = None
    differences: bool = True
    solves: bool = False
    skips: bool = False
    weight: float = 1.0
    covers: tuple[str, ...] = field(default=())

    def function(self) -> Callable[..., Any]:
        """What is called; looked up at each call, so that a function put in its place is seen."""
        if self.call is not None:
            return self.call
        first, *rest = self.name.split(".")
        found: Any = NAMESPACE[first]
        for part in rest:
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]
