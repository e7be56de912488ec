"""The same call in PyTorch, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.robustness.cases import Base, Case
from tests.robustness.expected import Array, Change, Made, met
from tests.robustness.record import Record


class Peer:
    """PyTorch, where it is installed.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def dtype(self, got: Array) -> Any:
        """PyTorch's dtype of a float result."""
        return self.torch.float32 if got.dtype == np.float32 else self.torch.float64

    def call(self, record: Record, case: Case, dtype: Any, change: Change | None = None) -> tuple[Made, list[Any]]:
        """The call in PyTorch: floats in a dtype, or in their own where it is None."""
        torch = self.torch

        def tensor(base: Base) -> Any:
            array = np.ascontiguousarray(base.array).reshape(base.array.shape)
            if change is not None and array.dtype.kind == "f":
                array = np.asarray(change(array.astype(np.float64)))
            out = torch.from_numpy(array.copy())
            if array.dtype.kind == "f":
                if dtype is not None:
                    out = out.to(dtype)
                out.requires_grad_(base.requires_grad)
            return out

        made = Made(met(record, case) if record.meets else case, tensor, lambda leaf: leaf.clone())
        assert record.peer is not None
        result = record.peer(torch, *made.args, **made.options)
        return made, made.outputs(result, record.returned)

    def backward(self, made: Made, outputs: list[Any], grads: list[Array], leaves: list[Base]) -> list[Array]:
        """The gradients of the leaves, for gradients of the float outputs."""
        torch = self.torch
        floats = [o for o in outputs if o.is_floating_point()]
        upstream = [torch.from_numpy(g.astype(np.float64)).to(o.dtype) for g, o in zip(grads, floats, strict=True)]
        chosen = [(o, g) for o, g in zip(floats, upstream, strict=True) if o.requires_grad]
        if chosen:
            torch.autograd.backward([o for o, _ in chosen], [g for _, g in chosen])
        found = []
        for base in leaves:
            grad = made.leaves[base.key].grad
            found.append(np.zeros(base.array.shape) if grad is None else grad.numpy())
        return found

    def gradients(
        self,
        record: Record,
        case: Case,
        dtype: Any,
        grads: list[Array],
        leaves: list[Base],
        change: Change | None = None,
    ) -> list[Array]:
        """Forward and backward at once."""
        made, outputs = self.call(record, case, dtype, change)
        return self.backward(made, outputs, grads, leaves)


def array_of(value: Any) -> Array:
    """A PyTorch tensor, or a number, as an array."""
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
