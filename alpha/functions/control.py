"""Control flow that depends on tensors' values, under PyTorch's names: a choice, and a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.errors import ArgumentError, ShapeError, described
from alpha.tensor import Tensor

__all__ = ["cond", "while_loop"]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """What one of two functions returns for the operands: the first where ``pred`` holds, else the second.

    Only that one is called, and gradients flow through it. ``pred``: a bool, a number or a tensor of one element, which
    is read; ``operands``: a tuple or list.
    """
    given = _operands("cond", operands)
    for name, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if not callable(function):
            raise ArgumentError(f"[cond] expected {name} as a function, got {described(function)}")
    return true_fn(*given) if _holds("cond", pred) else false_fn(*given)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> tuple[Any, ...]:
    """Replaces the carried values by ``body_fn(*values)`` while ``cond_fn(*values)`` holds, and returns the last ones.

    ``cond_fn`` returns a bool or a tensor of one element, which is read; ``body_fn`` as many values as are carried, in
    a tuple or list. Gradients flow through every turn.
    """
    values = _operands("while_loop", carried_inputs)
    for name, function in (("cond_fn", cond_fn), ("body_fn", body_fn)):
        if not callable(function):
            raise ArgumentError(f"[while_loop] expected {name} as a function, got {described(function)}")
    while _holds("while_loop", cond_fn(*values)):
        made = body_fn(*values)
        if not isinstance(made, tuple | list) or len(made) != len(values):
            raise ArgumentError(
                f"[while_loop] expected body_fn to return {len(values)} values in a tuple, got {described(made)}"
            )
        values = tuple(made)
    return values


def _operands(name: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        raise ArgumentError(f"[{name}] expected operands in a tuple or list, got {described(given)}")
    return tuple(given)


def _holds(name: str, value: Any) -> bool:
    """The truth of a bool, a number or a tensor of one element."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ShapeError(f"[{name}] expected a condition of one element, got shape {value.shape}")
        return bool(value.item())
    if not isinstance(value, bool | int | float):
        raise ArgumentError(f"[{name}] expected a bool or a tensor of one element, got {described(value)}")
    return bool(value)
