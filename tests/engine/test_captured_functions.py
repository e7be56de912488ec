"""Functions that make numbers of their own, or check values: in captured steps too, without asking the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import ArgumentError
from alpha.nn import functional as F

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: alpha.triu(x > 0, 1) * x,
    "trace": lambda x: x.trace() * x,
    "diag": lambda x: x.diag() * x,
    "diagonal": lambda x: x.diagonal(1).square().sum() * x,
    "diagonal of several": lambda x: x.expand(3, 5, 5).diagonal(-1, 1, 2).square().sum() * x,
    "diagonal_scatter": lambda x: alpha.diagonal_scatter(x, x[0] * 2),
    "unfold": lambda x: x.unfold(0, 3, 2).square(),
    "as_strided": lambda x: alpha.as_strided(x * 1, (3, 2), (2, 1), 3).square(),
    "as_strided that overlaps": lambda x: alpha.as_strided(x * 1, (3, 4), (1, 1)).square(),
    "indices": lambda x: x * alpha.tril_indices(5, 5, engine=x.engine).sum(),
    "arange": lambda x: x * alpha.arange(5, engine=x.engine) + alpha.arange(0.0, 1.0, 0.2, engine=x.engine),
    "linspace": lambda x: x * alpha.linspace(0, 1, 5, engine=x.engine) + alpha.logspace(0, 1, 5, engine=x.engine),
    "halves": lambda x: (x.half() * 2).float() + x.bfloat16().float() * x,
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), (x > 0).float()),
    "gaussian_nll_loss": lambda x: F.gaussian_nll_loss(x, x * 2, x.square()),
    "causal attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_captured_as_it_is(engine: Engine, name: str) -> None:
    """The same results and gradients; whoever writes to a result changes no other call's."""
    w = alpha.tensor(np.random.default_rng(0).standard_normal((5, 5)).astype(np.float32), engine=engine)
    w.requires_grad_()

    def step(x: Any) -> Any:
        w.grad = None
        y = FUNCTIONS[name](w * x)
        (y * 3).sum().backward()
        return y, w.grad

    graphed = alpha.graph(step)
    for k in range(5):
        x = alpha.full((5,), 0.5 + k, engine=engine)
        found, right = graphed(x), [part.detach().clone() for part in step(x)]
        for one, other in zip(found, right, strict=True):
            np.testing.assert_array_equal(np.asarray(one.detach()), np.asarray(other))
            one.detach().zero_()
    if engine.recorder() is not None:
        assert graphed.captures == 1


@pytest.mark.slow
def test_what_the_host_made_is_the_callers(engine: Engine) -> None:
    def step(x: Any) -> Any:
        made = alpha.linspace(0, 1, 5, engine=engine), alpha.tril_indices(3, 3, engine=engine)
        for one in made:
            one.mul_(2)
        return [x * 1, *made]

    graphed = alpha.graph(step)
    right = [np.asarray(part).copy() for part in step(alpha.ones(2, engine=engine))]
    for _ in range(5):
        for one, other in zip(graphed(alpha.ones(2, engine=engine)), right, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)


@pytest.mark.slow
@pytest.mark.parametrize("captured", [False, True])
def test_what_is_wrong_is_said_where_the_host_waits(engine: Engine, captured: bool) -> None:
    """Values that are checked: in a step that was captured with right ones, too."""
    losses: list[Callable[[Any], Any]] = [
        lambda x: F.binary_cross_entropy(x, (x > 0.5).float()),
        lambda x: F.gaussian_nll_loss(x, x, x),
    ]
    for loss, wrong, expected in zip(losses, (1.5, -1.0), ("probabilities in 0..1", "a variance >= 0"), strict=True):
        step = alpha.graph(loss) if captured else loss
        good = alpha.full((7,), 0.25, engine=engine)
        for _ in range(4):
            right = step(good).item()
        with pytest.raises(ArgumentError, match=expected):
            step(alpha.full((7,), wrong, engine=engine)).item()
        assert step(good).item() == right
