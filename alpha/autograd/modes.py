"""Whether functions record a graph on this thread: no_grad, enable_grad, set_grad_enabled, inference_mode."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from alpha.arguments import flag
from alpha.scopes import Scope, Scoped

if TYPE_CHECKING:
    from alpha.autograd.walk import Walk

P = ParamSpec("P")
R = TypeVar("R")


class _Call(NamedTuple):
    """A thread's autograd state for the functions called now. Replaced as a whole, so that an interrupt finds no half
    of it.

    Attributes:
        enabled: whether functions record a graph, unless one of ``scopes`` says otherwise.
        recorded: whether the function whose ``forward`` is running will enter the graph.
        inference: whether a function's ``forward`` is running that will not enter the graph.
        training: whether this is within a function that enters the graph, or within backward.
        scopes: the ``with`` blocks that switch recording, innermost last, with what they switch it to; made when the
            first is entered.
    """

    enabled: bool
    recorded: bool
    inference: bool
    training: bool
    scopes: list[tuple[Scope, bool]] | None = None


class _Thread(threading.local):
    call = _Call(True, False, False, False)
    walk: Walk | None = None


THREAD = _Thread()
FORWARD = {
    (recorded, training): _Call(False, recorded, not training, training)
    for recorded in (False, True)
    for training in (False, True)
}
"""The state while a function's ``forward`` runs, by (recorded, training)."""

BACKWARD = _Call(False, False, False, True)
"""The state while a function's ``backward`` runs."""

BACKWARD_IN_GRAPH = _Call(True, False, False, True)
"""The same where the gradients enter a graph themselves."""


def is_grad_enabled() -> bool:
    """Whether functions called now on this thread record a graph."""
    call = THREAD.call
    return call.enabled if call.scopes is None else innermost(call)


def innermost(call: _Call) -> bool:
    """Whether the innermost ``with`` block that is running lets functions record a graph."""
    for scope, enabled in reversed(call.scopes or ()):
        if scope.is_open:
            return enabled
    return call.enabled


def is_recorded() -> bool:
    """Whether the function whose ``forward`` is running on this thread will enter the graph."""
    return THREAD.call.recorded


def is_inference() -> bool:
    """Whether a ``forward`` is running on this thread that belongs to no graph, not even of an outer function.

    What an engine derives from parameters may then be kept: no optimizer step will follow.
    """
    call = THREAD.call
    return call.inference and not call.training


def leads_to_inference() -> bool:
    """Whether ``is_inference`` holds in the ``forward`` of a function that is called now, outside the graph."""
    return not THREAD.call.training


def _switch(enabled: bool) -> None:
    """Turns the recording of the graph on or off on this thread, until the innermost ``with`` block that runs ends."""
    call = THREAD.call
    scopes = call.scopes or []
    for index in reversed(range(len(scopes))):
        if scopes[index][0].is_open:
            scopes[index] = (scopes[index][0], enabled)
            return
    THREAD.call = call._replace(enabled=enabled)


class _GradMode(Scoped):
    """Context manager and decorator: turns the recording of the graph on or off on this thread.

    As a decorator of a generator function it is in force while the generator runs, not while its caller does.
    """

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self._enabled = enabled

    def prepare(self, scope: Scope) -> None:
        call = THREAD.call
        if call.scopes is None:
            THREAD.call = call._replace(scopes=[(scope, self._enabled)])
            return
        while call.scopes and call.scopes[-1][0].is_over:
            call.scopes.pop()
        call.scopes.append((scope, self._enabled))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function):
            return cast(Callable[P, R], self._around_generator(function))

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with _GradMode(self._enabled):
                return function(*args, **kwargs)

        return call

    def _around_generator(self, function: Callable[P, Generator[Any, Any, Any]]) -> Callable[P, Any]:
        @wraps(function)
        def generate(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, Any]:
            with _GradMode(self._enabled):
                generator = function(*args, **kwargs)
            resume, value = generator.send, None
            while True:
                try:
                    with _GradMode(self._enabled):
                        result = resume(value)
                except StopIteration as end:
                    return end.value
                try:
                    resume, value = generator.send, (yield result)
                except GeneratorExit:
                    with _GradMode(self._enabled):
                        generator.close()
                    raise
                except BaseException as error:
                    resume, value = generator.throw, error

        return generate


class set_grad_enabled(_GradMode):
    """Turns the recording of the graph on or off on this thread.

    Called, from now on (within ``with no_grad():`` and its like until that block ends); as a context manager for a
    block; as a decorator for a function. Either of the latter leaves the mode outside as it was.
    """

    def __init__(self, mode: bool) -> None:
        super().__init__(flag("set_grad_enabled", "mode", mode))
        self._before = is_grad_enabled()
        _switch(self._enabled)

    def prepare(self, scope: Scope) -> None:
        super().prepare(scope)
        _switch(self._before)  # of what is around the block, which is not open yet

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        _switch(self._before)
        return super().__call__(function)


class _FixedMode(_GradMode):
    """A mode that is also a decorator without parentheses: ``@no_grad``."""

    mode: bool

    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)

    def __init__(self) -> None:
        super().__init__(self.mode)


class no_grad(_FixedMode):
    """``with no_grad():``, ``@no_grad()`` or ``@no_grad``: functions record no graph."""

    mode = False


class enable_grad(_FixedMode):
    """``with enable_grad():``, ``@enable_grad()`` or ``@enable_grad``: functions record a graph again."""

    mode = True


class inference_mode(_GradMode):
    """``with inference_mode():``, ``@inference_mode()`` or ``@inference_mode``: functions record no graph.

    It does what ``no_grad`` does; ``inference_mode(False)`` what ``enable_grad`` does. Tensors made in it are ordinary
    ones: where PyTorch refuses them in later training, they are constants here.
    """

    def __new__(cls, mode: Any = True) -> Any:
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not flag("inference_mode", "mode", mode))


def is_inference_mode_enabled() -> bool:
    """Whether functions called now on this thread record no graph: inference mode is ``no_grad`` here."""
    return not is_grad_enabled()
