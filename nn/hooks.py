"""A module's hooks: functions that are called around forward and backward, and around saving and loading its state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha import Function, Tensor, is_grad_enabled
from alpha.arguments import flag
from alpha.autograd import enters_graph
from alpha.errors import ArgumentError, described
from alpha.hooks import RemovableHandle

if TYPE_CHECKING:
    from alpha.nn.module import Module


class Registered(NamedTuple):
    """A hook.

    Attributes:
        hook: the function.
        with_kwargs: whether it also gets the call's keyword arguments.
        always: whether it is called after a forward that raised an error, too.
    """

    hook: Callable[..., Any]
    with_kwargs: bool = False
    always: bool = False


Table = dict[RemovableHandle, Registered]


class Hooks:
    """A module's hooks, in the order in which they are called.

    Attributes:
        before, after: of forward.
        backward_before, backward: of the gradients of the results, and of those of the arguments.
        saving, saved: of ``state_dict``.
        loading, loaded: of ``load_state_dict``.
    """

    __slots__ = ("after", "backward", "backward_before", "before", "loaded", "loading", "saved", "saving")

    def __init__(self) -> None:
        self.before: Table = {}
        self.after: Table = {}
        self.backward_before: Table = {}
        self.backward: Table = {}
        self.saving: Table = {}
        self.saved: Table = {}
        self.loading: Table = {}
        self.loaded: Table = {}

    @staticmethod
    def with_last(hooks: Hooks | None, hook: Callable[..., Any]) -> Hooks:
        """A copy of the hooks with one more after forward, as the last one."""
        more = Hooks()
        if hooks is not None:
            for name in Hooks.__slots__:
                setattr(more, name, getattr(hooks, name))
            more.after = dict(hooks.after)
        RemovableHandle(more.after, Registered(hook))
        return more

    @property
    def are_of_calls(self) -> bool:
        """Whether a call of the module does more than its forward."""
        return bool(self.before or self.after or self.backward or self.backward_before)

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's forward with the hooks around it."""
        waiting = dict(self.after)
        try:
            for entry in tuple(self.before.values()):
                args, kwargs = _arguments(module, entry, args, kwargs)
            watch = None
            if (self.backward or self.backward_before) and is_grad_enabled():
                watch = _Watch(module, self)
                args = watch.inputs(args)
            result = module.forward(*args, **kwargs)
            waiting = dict(self.after)
            for handle in tuple(waiting):
                replaced = _called_after(module, waiting.pop(handle), args, kwargs, result)
                result = result if replaced is None else replaced
            return result if watch is None else watch.outputs(result)
        except Exception:
            for entry in waiting.values():
                if entry.always:
                    _call_after_error(module, entry, args, kwargs)
            raise


def _arguments(
    module: Module, entry: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments after a hook before forward."""
    if not entry.with_kwargs:
        replaced = entry.hook(module, args)
        if replaced is None:
            return args, kwargs
        return replaced if isinstance(replaced, tuple) else (replaced,), kwargs
    replaced = entry.hook(module, args, kwargs)
    if replaced is None:
        return args, kwargs
    if not isinstance(replaced, tuple) or len(replaced) != 2:
        raise ArgumentError(
            f"[register_forward_pre_hook] expected a hook with_kwargs to return None or (args, kwargs), got "
            f"{described(replaced)}"
        )
    return replaced


def _called_after(module: Module, entry: Registered, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return entry.hook(module, args, kwargs, result) if entry.with_kwargs else entry.hook(module, args, result)


def _call_after_error(module: Module, entry: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Calls a hook after a forward that failed; an error of its own is a warning, for the first one is passed on."""
    try:
        _called_after(module, entry, args, kwargs, None)
    except Exception as error:
        warnings.warn(
            f"[register_forward_hook] expected no error of a hook with always_call, got: {error}", stacklevel=2
        )


# -- backward ----------------------------------------------------------------------------------------------------


class _Watch:
    """One call of a module whose gradients hooks see."""

    def __init__(self, module: Module, hooks: Hooks) -> None:
        self._module = module
        self._before, self._hooks = tuple(hooks.backward_before.values()), tuple(hooks.backward.values())
        self._arguments = 0
        self._places: list[int] = []
        self._grad_output: tuple[Any, ...] = ()

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, of which those in the graph come from a function whose backward calls the hooks."""
        self._arguments = len(args)
        self._places = [k for k, one in enumerate(args) if isinstance(one, Tensor) and enters_graph(one)]
        return self._through(_Arguments, args, self._places)

    def outputs(self, result: Any) -> Any:
        """The results alike."""
        several = result if isinstance(result, tuple) else (result,)
        if not all(isinstance(one, Tensor) for one in several):
            warnings.warn(
                f"[register_full_backward_hook] expected {type(self._module).__name__} to return a tensor or a tuple "
                f"of tensors, got {described(result)}: its hooks are not called in backward",
                stacklevel=2,
            )
            return result
        places = [k for k, one in enumerate(several) if enters_graph(one)]
        found = self._through(_Results, several, places)
        return found if isinstance(result, tuple) else found[0]

    def _through(self, function: type[_Watched], given: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
        """The given values, of which those at places go through a function."""
        if not places:
            return given
        passed = function.apply(self, len(given), places, *[given[k] for k in places])
        found = dict(zip(places, passed, strict=True))
        return tuple([found.get(k, one) for k, one in enumerate(given)])

    def of_results(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the results after the hooks before backward."""
        for entry in self._before:
            grads = _gradients("register_full_backward_pre_hook", entry.hook(self._module, grads), grads)
        self._grad_output = grads
        if not self._places:  # no argument's gradient will come
            self.of_arguments((None,) * self._arguments)
        return grads

    def of_arguments(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the arguments after the hooks."""
        for entry in self._hooks:
            replaced = entry.hook(self._module, grads, self._grad_output)
            grads = _gradients("register_full_backward_hook", replaced, grads)
        return grads


def _gradients(function: str, replaced: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients that a hook returns, or those before for None."""
    if replaced is None:
        return grads
    several = tuple(replaced) if isinstance(replaced, tuple | list) else (replaced,)
    if len(several) != len(grads) or not all(one is None or isinstance(one, Tensor) for one in several):
        raise ArgumentError(
            f"[{function}] expected a hook that returns None or {len(grads)} gradients, tensors or None, got "
            f"{described(replaced)}"
        )
    return several


class _Watched(Function):
    """Tensors, unchanged; what backward does with their gradients is the subclass's."""

    def forward(self, watch: _Watch, count: int, places: list[int], *tensors: Tensor) -> tuple[Tensor, ...]:
        self.watch, self.count, self.places = watch, count, places
        return tensors

    def observed(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients that hooks leave."""
        raise NotImplementedError

    def backward(self, *grads: Tensor | None) -> tuple[Any, ...]:
        found = dict(zip(self.places, grads, strict=True))
        seen = self.observed(tuple([found.get(k) for k in range(self.count)]))
        return (None, None, None, *[seen[k] for k in self.places])


class _Arguments(_Watched):
    """The arguments of a call."""

    def observed(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.watch.of_arguments(grads)


class _Results(_Watched):
    """The results of a call."""

    def observed(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.watch.of_results(grads)


# -- registration ------------------------------------------------------------------------------------------------


class Hooked:
    """Base of Module: its hooks. Each method returns a handle whose ``remove()`` removes the hook."""

    _hooks: Hooks | None = None

    def _register(
        self, kind: str, function: str, hook: Callable[..., Any], prepend: bool = False, **options: Any
    ) -> RemovableHandle:
        if not callable(hook):
            raise ArgumentError(f"[{function}] expected a function as the hook, got {described(hook)}")
        self._hooks = self._hooks or Hooks()
        given = {name: flag(function, name, value) for name, value in options.items()}
        table, entry = getattr(self._hooks, kind), Registered(hook, **given)
        make = RemovableHandle.first if flag(function, "prepend", prepend) else RemovableHandle
        return make(table, entry)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls ``hook(module, args)`` before each forward; what it returns, if not None, replaces the arguments.

        Args:
            hook: the function; it may return one argument, or a tuple of them.
            prepend: whether it is called before the module's other hooks of this kind.
            with_kwargs: whether it is called as ``hook(module, args, kwargs)``, and returns None or both.
        """
        name = "register_forward_pre_hook"
        return self._register("before", name, hook, prepend, with_kwargs=with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Calls ``hook(module, args, result)`` after each forward; what it returns, if not None, is the result.

        Args:
            hook: the function.
            prepend: whether it is called before the module's other hooks of this kind.
            with_kwargs: whether it is called as ``hook(module, args, kwargs, result)``.
            always_call: whether it is called, with None as the result, after a forward that raised an error, too.
        """
        name = "register_forward_hook"
        return self._register("after", name, hook, prepend, with_kwargs=with_kwargs, always=always_call)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_output)`` when the results' gradients are known; it may return others.

        ``grad_output`` is a tuple of the results' gradients, None where there is none.
        """
        return self._register("backward_before", "register_full_backward_pre_hook", hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(module, grad_input, grad_output)`` when the gradients of a call's arguments are known.

        Both are tuples, None where there is no gradient; what it returns, if not None, replaces ``grad_input``. Of a
        call of which no positional argument is in the graph, it comes with the gradients of the results.
        """
        return self._register("backward", "register_full_backward_hook", hook, prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, prefix, keep_vars)`` before each ``state_dict`` takes this module's tensors."""
        return self._register("saving", "register_state_dict_pre_hook", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata)`` after each ``state_dict``, which it may change."""
        return self._register("saved", "register_state_dict_post_hook", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)`` before
        ``load_state_dict``: it may change the dict, a copy of what is this module's and those below, and the lists."""
        return self._register("loading", "register_load_state_dict_pre_hook", hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(module, incompatible_keys)`` after ``load_state_dict``, those below first.

        It may change both lists of keys; what it leaves in them is an error if the load was strict.
        """
        return self._register("loaded", "register_load_state_dict_post_hook", hook)


def hooks_of(module: Hooked, kind: str) -> Sequence[Callable[..., Any]]:
    """A module's hooks of a kind, as functions."""
    hooks = module._hooks
    return [] if hooks is None else [entry.hook for entry in getattr(hooks, kind).values()]
