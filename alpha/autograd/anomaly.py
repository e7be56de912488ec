"""Anomaly mode: the walk names the call in whose gradient a nan arose, and where the program made that call."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import dtypes
from alpha.arguments import flag
from alpha.errors import NumericsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alpha.tensor import Tensor

_PACKAGE = str(Path(__file__).parent.parent)


class _State:
    """Whether anomaly mode is on: one switch for all threads, as in PyTorch."""

    on = False
    checks_nan = True


STATE = _State()


class set_detect_anomaly:
    """Turns anomaly mode on or off: called, from now on; as a context manager, for a block.

    While it is on, functions note where they are called, and backward raises NumericsError for the first gradient
    with a nan in it, with that place. It makes training several times slower: every gradient is read.

    Args:
        mode: whether it is on.
        check_nan: whether gradients are looked through; without, only the places are noted.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = STATE.on, STATE.checks_nan
        STATE.on = flag("set_detect_anomaly", "mode", mode)
        STATE.checks_nan = flag("set_detect_anomaly", "check_nan", check_nan)

    def __enter__(self) -> None:
        """It is on already."""

    def __exit__(self, *_: object) -> None:
        STATE.on, STATE.checks_nan = self._before


class detect_anomaly(set_detect_anomaly):
    """``with detect_anomaly():`` anomaly mode for a block; see ``set_detect_anomaly``."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return STATE.on


def is_anomaly_check_nan_enabled() -> bool:
    """Whether backward looks for nan while anomaly mode is on."""
    return STATE.checks_nan


def origin() -> str:
    """The lines of the program that lead to this call, without those of the package."""
    frames = [frame for frame in traceback.extract_stack() if not frame.filename.startswith(_PACKAGE)]
    return "".join(traceback.format_list(frames[-8:]))


def check(title: str, origin: str, gradients: Sequence[Any]) -> None:
    """NumericsError if one of a function's gradients has a nan; ``origin``: where the function was called."""
    if not STATE.checks_nan:
        return
    for argument, gradient in enumerate(gradients):
        if gradient is not None and dtypes.is_float(gradient.dtype) and _has_nan(gradient):
            place = f"which was called here:\n{origin}" if origin else "called before anomaly mode was turned on"
            raise NumericsError(
                f"[backward] expected gradients without nan, got one for argument {argument} of {title}, {place}"
            )


def _has_nan(x: Tensor) -> bool:
    return bool(np.isnan(x.engine.to_numpy(x.detach())).any())
