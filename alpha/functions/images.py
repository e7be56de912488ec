"""Functions of images in either layout: written for channels last, and given views where channels are second."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from alpha import layout as layouts
from alpha.errors import ShapeError
from alpha.functions.shape import permute, squeeze, unsqueeze
from alpha.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

_TO_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
_TO_SECOND = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
"""Orders of axes by their number. A tensor of fewer, such as (N, C), is the same in both layouts."""

_CHANNELS = (1, 3)
"""Channels of gray and of coloured images."""

_LEAST_SIDE = 8
"""The least height and width of what is taken for a square image by its shape."""


def channels_last(x: Any, ndim: int | None = None) -> Any:
    """(N, C, H, W) seen as (N, H, W, C), and sequences and volumes alike; what is no such tensor as it is.

    ``ndim``: the only number of axes that such a tensor may have.
    """
    order = _TO_LAST.get(len(x.shape)) if isinstance(x, Tensor) and ndim in (None, len(x.shape)) else None
    return x if order is None else permute(x, order)


def channels_second(x: Any) -> Any:
    """(N, H, W, C) seen as (N, C, H, W), the reverse of ``channels_last``; the members of a tuple alike."""
    if isinstance(x, tuple):
        return tuple(channels_second(one) for one in x)
    order = _TO_SECOND.get(len(x.shape)) if isinstance(x, Tensor) else None
    return x if order is None else permute(x, order)


def check_likely(function: str, x: Any, layout: str) -> None:
    """ShapeError for square images that by their shape most likely have the other layout."""
    shape = x.shape if isinstance(x, Tensor) else ()
    if len(shape) != 4 or min(shape[1], shape[3]) not in _CHANNELS:
        return
    first = shape[1] in _CHANNELS and shape[2] == shape[3] >= _LEAST_SIDE
    last = shape[3] in _CHANNELS and shape[1] == shape[2] >= _LEAST_SIDE
    if (first and layout == "NHWC") or (last and layout == "NCHW"):
        axes = {"NHWC": "(N, H, W, C)", "NCHW": "(N, C, H, W)"}
        other = "NCHW" if layout == "NHWC" else "NHWC"
        raise ShapeError(
            f"[{function}] expected images {axes[layout]}, got {shape}, which look like {axes[other]}: call "
            f'alpha.set_image_layout("{other}"), or pass layout="{layout}" if they are not'
        )


def of_images(
    *names: str, moves: bool = True, guesses: bool = False, axes: int | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Lets a function written for channels last take tensors in the layout in force, or that of its ``layout``.

    Args:
        names: the arguments that have channels, images and filters alike; the first is the images. Others that have
            another number of axes than the images have no channels.
        moves: whether the result has channels.
        guesses: whether the images' shape alone is to show that they have the other layout: no filter does.
        axes: how many axes the images have beside those of the batch and of channels; where this is given, the function
            takes one image without the axis of the batch too.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = list(inspect.signature(function).parameters)
        places = [(parameters.index(name), name) for name in names]
        title = getattr(function, "__name__", "")

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given: Any = kwargs.pop("layout", None) if kwargs else None
            layout = layouts.resolved(title, given)
            if not args and names[0] in kwargs:
                first: Any = (kwargs.pop(names[0]),)
                args = first
            ndim = len(args[0].shape) if args and isinstance(args[0], Tensor) else 0
            if axes is not None and ndim == axes + 1:
                alone: R = _of_one(call, places, ndim, args, {**kwargs, "layout": given})
                return alone
            if guesses and given is None and args:
                check_likely(title, args[0], layout)
            if layout == "NHWC":
                try:
                    return function(*args, **kwargs)
                except ShapeError as error:
                    raise _explained(error, args, layout) from None
            moved: list[Any] = list(args)
            for place, name in places:
                if place < len(moved):
                    moved[place] = channels_last(moved[place], ndim)
                elif name in kwargs:
                    kwargs[name] = channels_last(kwargs[name], ndim)
            inner: Any = function
            try:
                result = inner(*moved, **kwargs)
            except ShapeError as error:
                raise _explained(error, args, layout) from None
            found: R = channels_second(result) if moves else result
            return found

        return call

    return decorate


def _of_one(
    function: Callable[..., Any], places: list[tuple[int, str]], ndim: int, args: Any, kwargs: dict[str, Any]
) -> Any:
    """What a function of a batch of images makes of one image, without the axis of the batch."""
    given = list(args)
    for place, name in places:
        value = given[place] if place < len(given) else kwargs.get(name)
        if isinstance(value, Tensor) and len(value.shape) == ndim:
            if place < len(given):
                given[place] = unsqueeze(value, 0)
            else:
                kwargs[name] = unsqueeze(value, 0)
    found = function(*given, **kwargs)
    return tuple(squeeze(one, 0) for one in found) if isinstance(found, tuple) else squeeze(found, 0)


def _explained(error: ShapeError, args: Any, layout: str) -> ShapeError:
    """The error, with what the layout has to do with it."""
    shape = args[0].shape if args and isinstance(args[0], Tensor) else ()
    if layout == "NHWC":
        if len(shape) > 3 and shape[1] < shape[-1]:
            return ShapeError(f'{error} (the layout is "NHWC": for (N, C, H, W) call alpha.set_image_layout("NCHW"))')
        return error
    return ShapeError(f'{error} (shapes are shown with channels last; the layout is "NCHW", x: {shape})')
