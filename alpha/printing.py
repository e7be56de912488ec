"""How tensors print: ``set_printoptions``, and the text of a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import dtypes
from alpha.arguments import flag, number, one_of, whole
from alpha.errors import ArgumentError

if TYPE_CHECKING:
    from alpha.tensor import Tensor


@dataclass(frozen=True)
class Options:
    """What ``set_printoptions`` sets."""

    precision: int = 4
    threshold: float = 100
    edgeitems: int = 3
    linewidth: int = 75
    sci_mode: bool | None = None


PROFILES = {
    "default": Options(),
    "short": Options(precision=2, threshold=1000, edgeitems=2),
    "full": Options(threshold=math.inf),
}
_options = PROFILES["default"]


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors print from now on; what is None stays, but for ``sci_mode``.

    Args:
        precision: digits of floats behind the point, at first 4.
        threshold: tensors of more elements than this are summarised, at first 100; PyTorch's is 1000.
        edgeitems: elements at the beginning and the end of each axis of a summary, at first 3.
        linewidth: columns after which lines are broken, at first 75.
        profile: "default", "short" or "full" (no summaries) sets all of these; those named beside it come after it.
        sci_mode: whether floats print as 1.0000e+00; None: where their sizes ask for it.
    """
    global _options
    chosen = _options if profile is None else PROFILES[one_of("set_printoptions", "profile", profile, list(PROFILES))]
    given: dict[str, Any] = {}
    for name, value in (("precision", precision), ("edgeitems", edgeitems), ("linewidth", linewidth)):
        if value is not None:
            given[name] = whole("set_printoptions", name, value, 0, _MOST)
    if threshold is not None:
        given["threshold"] = number("set_printoptions", "threshold", threshold)
        if not given["threshold"] >= 0:
            raise ArgumentError(f"[set_printoptions] expected threshold >= 0, got {threshold}: inf summarises none")
    given["sci_mode"] = None if sci_mode is None else flag("set_printoptions", "sci_mode", sci_mode)
    _options = replace(chosen, **given)


_MOST = 10_000
"""Digits, elements and columns that nobody asks more of."""


def text_of(x: Tensor) -> str:
    """The values of a tensor, and what it is: its ``repr``."""
    parts = [f"shape={x.shape}", f"dtype={x.dtype}", f"engine={x.engine.name}"]
    if x._node is not None:
        parts.append(f"grad_fn={x._node.title}")
    elif x.requires_grad:
        parts.append("requires_grad=True")
    return f"tensor({_values(x)}, {', '.join(parts)})".replace("\n", "\n       ")


def _values(x: Tensor) -> str:
    """A tensor's elements as the options have them."""
    chosen: Options = _options
    formatter: Any = None
    if chosen.sci_mode and dtypes.category(x.dtype) >= dtypes.FLOAT:
        formatter = {"all": lambda value: f"{value.item():.{chosen.precision}e}"}
    return np.array2string(
        x.engine.to_numpy(x.detach()),
        separator=", ",
        threshold=int(min(chosen.threshold, np.iinfo(np.int64).max)),
        edgeitems=chosen.edgeitems,
        precision=chosen.precision,
        max_line_width=chosen.linewidth,
        suppress_small=chosen.sci_mode is False,
        formatter=formatter,
    )
