"""The order of an image's axes: (N, H, W, C), or with ``set_image_layout("NCHW")`` PyTorch's (N, C, H, W)."""

from __future__ import annotations

import threading
from typing import Any

from alpha.errors import ArgumentError, described
from alpha.scopes import Scope, Scoped

LAYOUTS = ("NHWC", "NCHW")


class _Process:
    """The layout of threads that are within no ``with`` block."""

    layout = LAYOUTS[0]


class _Thread(threading.local):
    """A thread's ``with`` blocks, innermost last, with their layouts; None until the first."""

    scopes: list[tuple[Scope, str]] | None = None


_THREAD = _Thread()


def get_image_layout() -> str:
    """``"NHWC"`` or ``"NCHW"``: the layout of functions that are called now and of layers that are made now."""
    for scope, layout in reversed(_THREAD.scopes or ()):
        if scope.is_open:
            return layout
    return _Process.layout


class set_image_layout(Scoped):
    """Sets the order of the axes of images: ``"NHWC"``, channels last, or ``"NCHW"``, PyTorch's, channels second.

    Called, from now on in all threads (within a ``with`` block of it until that block ends); as a context manager for a
    block on this thread. Every function that knows channels follows, of sequences (N, C, L) and volumes (N, C, D, H, W)
    too, with filters (OC, IC, FH, FW). A layer keeps the layout in which it was made. Only views change: what lies in
    memory, and what is computed, is the same.
    """

    def __init__(self, layout: str) -> None:
        super().__init__()
        self._layout, self._before = checked("set_image_layout", layout), get_image_layout()
        _switch(self._layout)

    def prepare(self, scope: Scope) -> None:
        scopes = _THREAD.scopes if _THREAD.scopes is not None else []
        while scopes and scopes[-1][0].is_over:
            scopes.pop()
        scopes.append((scope, self._layout))
        _THREAD.scopes = scopes
        _switch(self._before)  # around the block, which is not open yet


def _switch(layout: str) -> None:
    """Sets the layout of the innermost ``with`` block that runs on this thread, or of the process."""
    scopes = _THREAD.scopes or []
    for index in reversed(range(len(scopes))):
        if scopes[index][0].is_open:
            scopes[index] = (scopes[index][0], layout)
            return
    _Process.layout = layout


def checked(function: str, layout: Any) -> str:
    """A layout; ArgumentError for anything else."""
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise ArgumentError(f'[{function}] expected the layout "NHWC" or "NCHW", got {described(layout)}')
    return str(layout)


def resolved(function: str, layout: str | None) -> str:
    """The layout that an argument names, or for None the one in force."""
    return get_image_layout() if layout is None else checked(function, layout)


def is_channels_first(function: str, layout: str | None) -> bool:
    """Whether channels are the second axis, by an argument or, for None, by the layout in force."""
    if layout is None:
        return (_Process.layout if _THREAD.scopes is None else get_image_layout()) == "NCHW"
    return checked(function, layout) == "NCHW"
