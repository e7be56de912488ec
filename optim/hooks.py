"""Functions that an optimizer calls around its steps and around saving and loading its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.arguments import flag
from alpha.errors import ArgumentError, described
from alpha.hooks import RemovableHandle

Hooks = dict[RemovableHandle, Callable[..., Any]]
"""Functions by handle, in the order in which they are called."""


_before_all: Hooks = {}
_after_all: Hooks = {}


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(optimizer, args, kwargs)`` before each step of every optimizer, before the optimizer's own hooks."""
    return _registered("register_optimizer_step_pre_hook", _before_all, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls ``hook(optimizer, args, kwargs)`` after each step of every optimizer, after the optimizer's own hooks."""
    return _registered("register_optimizer_step_post_hook", _after_all, hook)


class Hooked:
    """Base of what calls hooks before and after ``step``, ``state_dict`` and ``load_state_dict``."""

    def __init__(self) -> None:
        self._step_pre_hooks: Hooks = {}
        self._step_post_hooks: Hooks = {}
        self._state_dict_pre_hooks: Hooks = {}
        self._state_dict_post_hooks: Hooks = {}
        self._load_pre_hooks: Hooks = {}
        self._load_post_hooks: Hooks = {}

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(optimizer, args, kwargs)`` before each step; it may return a pair of others to step with."""
        return _registered("register_step_pre_hook", self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls ``hook(optimizer, args, kwargs)`` after each step."""
        return _registered("register_step_post_hook", self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer)`` before a state_dict is made."""
        return _registered("register_state_dict_pre_hook", self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer, state_dict)`` after one is made; it may return another instead of it."""
        return _registered("register_state_dict_post_hook", self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer, state_dict)`` before one is loaded; it may return another to load."""
        return _registered("register_load_state_dict_pre_hook", self._load_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Calls ``hook(optimizer)`` after a state was loaded."""
        return _registered("register_load_state_dict_post_hook", self._load_post_hooks, hook, prepend)

    @property
    def _has_step_hooks(self) -> bool:
        """Whether anything is called around a step."""
        return bool(self._step_pre_hooks or self._step_post_hooks or _before_all or _after_all)

    def _before_step(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments that a step is to have, after its hooks."""
        for hook in (*_before_all.values(), *self._step_pre_hooks.values()):
            found = hook(self, args, kwargs)
            if found is None:
                continue
            if not isinstance(found, tuple) or len(found) != 2:
                raise ArgumentError(
                    f"[register_step_pre_hook] expected a hook that returns None or (args, kwargs), got "
                    f"{described(found)}: return None to change nothing"
                )
            args, kwargs = found
        return args, kwargs

    def _after_step(self, args: Any, kwargs: Any) -> None:
        for hook in (*self._step_post_hooks.values(), *_after_all.values()):
            hook(self, args, kwargs)

    def _replaced(self, hooks: Hooks, state: Any) -> Any:
        """A state after hooks that may replace it."""
        for hook in tuple(hooks.values()):
            found = hook(self, state)
            state = state if found is None else found
        return state


def _registered(name: str, hooks: Hooks, hook: Any, prepend: bool = False) -> RemovableHandle:
    if not callable(hook):
        raise ArgumentError(f"[{name}] expected a function as hook, got {described(hook)}")
    make = RemovableHandle.first if flag(name, "prepend", prepend) else RemovableHandle
    return make(hooks, hook)
