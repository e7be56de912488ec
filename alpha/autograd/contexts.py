"""PyTorch's form of functions: static ``forward(ctx, ...)`` and ``backward(ctx, ...)``, the function being ``ctx``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from alpha.arguments import flag
from alpha.autograd.modes import no_grad
from alpha.errors import ArgumentError, GraphError

if TYPE_CHECKING:
    from alpha.tensor import Tensor

    Base = Any
else:
    Base = object


class Context(Base):
    """What ``ctx`` has in PyTorch's form of a function."""

    _materializes = True
    _without_gradient: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps arguments and results for backward: ``save``."""
        self.save(*tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was kept: ``saved``."""
        return self.saved  # type: ignore[no-any-return]

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """Per argument of forward, whether its gradient is asked for: ``needs``."""
        return self.needs  # type: ignore[no-any-return]

    def mark_non_differentiable(self, *results: Tensor) -> None:
        """Says of results that they have no gradient; forward returns them outside the graph."""
        self._without_gradient = results

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, or else None, for a result that no gradient reached."""
        self._materializes = flag("set_materialize_grads", "value", value)


def adapt(function: type) -> None:
    """Makes methods of the static functions that a subclass of Function has in PyTorch's form."""
    given = vars(function)
    static = {
        name: given[name].__func__
        for name in ("forward", "backward", "setup_context")
        if isinstance(given.get(name), staticmethod)
    }
    if "setup_context" in static:
        if "forward" not in static:
            raise ArgumentError(
                f"[{function.__name__}] expected a static forward(...) beside setup_context(ctx, inputs, output), got "
                "none: write one"
            )
        function.forward = _split(static["forward"], static["setup_context"])  # type: ignore[attr-defined]
    elif "forward" in static:
        function.forward = static["forward"]  # type: ignore[attr-defined]
    if "backward" in static:
        function.backward = _with_zeros(static["backward"])  # type: ignore[attr-defined]


def _split(forward: Callable[..., Any], setup: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that has no context, and what fills the context after it, as one method."""

    @wraps(forward)
    def both(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        setup(self, args, output)
        return output

    return both


def _with_zeros(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose gradients are zeros where none arrived."""

    @wraps(backward)
    def materialized(self: Any, *grads: Any) -> Any:
        if self._materializes and None in [None if grad is None else 0 for grad in grads]:
            grads = tuple(
                output[1].full(output[0], 0, output[2]) if grad is None else grad
                for grad, output in zip(grads, self._outputs, strict=True)
            )
        return backward(self, *grads)

    return materialized


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a static ``backward`` that is not made of differentiable functions.

    Its gradients may be computed with ``create_graph=True``, but have none themselves: GraphError where they are asked
    for.
    """

    @wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        from alpha.autograd.function import enters_graph

        with no_grad():
            found = backward(ctx, *grads)
        if not enters_graph(*grads, *[saved for saved in ctx.saved if saved is not None]):
            return found
        several = found if isinstance(found, tuple | list) else (found,)
        barred = tuple([None if one is None else _barrier().apply(one.detach().requires_grad_()) for one in several])
        return barred if isinstance(found, tuple | list) else barred[0]

    return once


def _barrier() -> Any:
    from alpha.autograd.function import Function

    class Barrier(Function):
        """A gradient that has none itself."""

        def forward(self, x: Tensor) -> Tensor:
            return x.clone()

        def backward(self, grad: Tensor) -> Tensor:
            raise GraphError(
                "[backward] expected a gradient that is differentiable, got one of a backward that is marked "
                "once_differentiable: make it of differentiable functions"
            )

    return Barrier
