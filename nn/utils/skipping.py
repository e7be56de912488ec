"""skip_init: a layer whose weights are not drawn, because they are loaded anyway."""

from __future__ import annotations

from typing import Any, TypeVar

from alpha.errors import ArgumentError
from alpha.nn.filling import skipping
from alpha.nn.module import Module

Layer = TypeVar("Layer", bound=Module)


def skip_init(module_cls: type[Layer], *args: Any, **kwargs: Any) -> Layer:
    """Makes a module whose parameters and buffers have memory but no values; nothing is drawn.

    Args:
        module_cls: the module's class.
        args, kwargs: of its constructor.
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise ArgumentError(f"[skip_init] expected a class of modules, got {module_cls!r}")
    with skipping():
        return module_cls(*args, **kwargs)
