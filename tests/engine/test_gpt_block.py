"""A GPT block trained from the same weights as PyTorch's: the losses of the first steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from benchmarks.gpt_worker import Sizes, alpha_step, torch_step


@pytest.mark.needs("torch")
# float64: a few thousand roundings. float32: steps of 1e-3 along gradients that have rounding's sign where they are 0.
@pytest.mark.parametrize(("dtype", "limit"), [(np.float64, 1e-9), (np.float32, 2e-5)], ids=["float64", "float32"])
def test_losses_are_pytorchs(dtype: Any, limit: float) -> None:
    sizes = Sizes(batch=2, tokens=40, embedding=48, heads=3)
    steps = alpha_step(alpha.engine("cpu"), sizes, 0, dtype), torch_step("cpu", sizes, 0, dtype)
    losses = [[step().item() for _ in range(5)] for step in steps]
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0, atol=limit)
