"""Shapes in place: a tensor becomes a view of itself, as ``x.squeeze_()``; its memory may grow, as by ``resize_``.

As in PyTorch these count as writes: what backward saved of the tensor before is no longer valid.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from alpha.arguments import shape_of
from alpha.autograd import enable_grad
from alpha.changes import at_once, setting, taking, versions
from alpha.errors import ArgumentError, GraphError
from alpha.functions.inplace import alias_of, changed_in_graph
from alpha.functions.operands import check_tensor
from alpha.functions.shape import squeeze, transpose, unsqueeze
from alpha.functions.views import as_strided, swapaxes, swapdims, t
from alpha.tensor import Tensor, dense_strides


def _becomes(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function that makes a tensor the view of itself that another returns: ``t_`` of ``t``. It returns x."""
    name = f"{function.__name__}_"
    signature = inspect.signature(function)

    @wraps(function)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            signature.bind(x, *args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"[{name}] expected the arguments of {function.__name__}, got others: {error}"
            ) from None
        check_tensor(name, x)
        changed_in_graph(name, x, ())
        with enable_grad():  # a result of the graph stays one: its place must have its shape
            view = function(alias_of(x), *args, **kwargs)
        lay(x, view)
        return x

    call.__name__, call.__qualname__ = name, name
    call.__doc__ = f"x becomes ``{function.__name__}(x, ...)``, a view of its memory. Returns x."
    return call


def lay(x: Tensor, view: Tensor) -> None:
    """Gives a tensor the layout and the place in the graph of a view of it, at once."""
    actions = [*taking(x, view), *versions([x])]
    node, old = view._node, x._node
    retained = old is not None and old._retained is not None and old._retained.pop(x._output, None) is not None
    if old is not None and node is not None:
        actions += [setting(x, "_node", node), setting(x, "_output", view._output)]
        if x._base_version >= 0:
            actions.append(setting(x, "_base_version", x.version + 1))
    at_once(actions)
    if retained:
        x.retain_grad()


as_strided_ = _becomes(as_strided)
squeeze_ = _becomes(squeeze)
swapaxes_ = _becomes(swapaxes)
swapdims_ = _becomes(swapdims)
t_ = _becomes(t)
transpose_ = _becomes(transpose)
unsqueeze_ = _becomes(unsqueeze)


def detach_(x: Tensor) -> Tensor:
    """Takes a tensor out of the graph: it becomes a leaf that requires no gradient. Returns x.

    GraphError for a view, whose place in the graph follows from what it views.
    """
    check_tensor("detach_", x)
    if x._base is not None:
        raise GraphError("[detach_] expected a tensor that is no view, got one: use .detach(), which makes another")
    if x._node is not None and x._node._retained is not None:
        x._node._retained.pop(x._output, None)
    at_once([setting(x, "requires_grad", False), setting(x, "_node", None), setting(x, "_output", 0)])
    return x


def resize_(x: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Gives a tensor another shape, row-major from its first element on: ``resize_(2, 3)``. Returns x.

    The elements that its memory holds stay; those beyond are uninitialised. Memory that does not suffice is replaced by
    larger memory of the tensor alone: other tensors over the old one keep that, where PyTorch's would follow.
    GraphError for a tensor that requires grad. ``memory_format`` says nothing here.
    """
    check_tensor("resize_", x)
    return _resized("resize_", x, shape_of("resize_", sizes))


def resize_as_(x: Tensor, other: Tensor, memory_format: Any = None) -> Tensor:
    """``resize_`` to another tensor's shape. Returns x. ``memory_format`` says nothing here."""
    check_tensor("resize_as_", x, other)
    return _resized("resize_as_", x, other.shape)


def _resized(name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor with another shape."""
    if x.requires_grad:
        raise GraphError(f"[{name}] expected a tensor that requires no grad, got one that does: use .detach() first")
    if shape == x.shape:
        return x
    count, held = math.prod(shape), x.storage.nbytes // x.itemsize - x.offset
    strides = dense_strides(shape)
    if count <= held:
        lay(x, x.strided(x.offset, shape, strides))
        return x
    larger = x.engine.empty(shape, x.dtype)
    if held > 0:
        x.engine.copy(x.strided(x.offset, (held,), (1,)), larger.strided(0, (held,), (1,)))
    at_once([*taking(x, larger), setting(x, "_base", None)])
    return x
