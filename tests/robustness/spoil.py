"""Wrong arguments on purpose: a call that was right, with one of them replaced, dropped or added."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.robustness.cases import DTYPES, Base, Case, Draw, Input

VALUES: tuple[Any, ...] = (
    None,
    "x",
    -1,
    0,
    1.5,
    -7,
    2**31,
    2**63,
    -(2**70),
    math.nan,
    math.inf,
    -math.inf,
    True,
    (),
    [],
    (0, 0),
    (-1, 2),
    [1, 2, 3],
    {},
    b"bytes",
    1j,
    object,
    slice(None),
    Ellipsis,
    np.float32(2),
    np.int64(-3),
    np.array([1.0, 2.0]),
    np.zeros((0, 3), np.float32),
    np.array(["a"]),
    np.array([None]),
    np.datetime64("2020-01-01"),
    np.float16(1),
    np.complex64(1),
)
"""What a user may pass by mistake in the place of anything."""


def spoiled(case: Case, draw: Draw, kept: int = 0) -> Case:
    """The case with one argument made wrong, or a wrong number of them.

    The first ``kept`` stay: of a method the tensor itself, without which Python would not call it.
    """
    args, options = list(case.args), dict(case.options)
    places: list[tuple[Any, Any]] = [(args, i) for i in range(kept, len(args))] + [(options, key) for key in options]
    kind = draw.whole(0, 11)
    if kind == 0 and len(args) > kept:
        args.pop()
    elif kind == 1:
        args.append(draw.pick(VALUES))
    elif kind == 2:
        options["no_such_option"] = 1
    elif places:
        holder, key = draw.pick(places)
        holder[key] = _wrong(holder[key], draw)
    return Case(args, options, False, False, True)


def _wrong(value: Any, draw: Draw) -> Any:
    if isinstance(value, Input) and draw.chance(0.7):
        return _other_tensor(value, draw)
    if isinstance(value, list | tuple) and value and draw.chance(0.6):
        changed = list(value)
        place = draw.whole(0, len(changed) - 1)
        if draw.chance(0.7):
            changed[place] = _wrong(changed[place], draw)
        else:
            changed.pop(place)
        return type(value)(changed) if type(value) in (list, tuple) else changed
    return draw.pick(VALUES)


def _other_tensor(value: Input, draw: Draw) -> Any:
    """A tensor of another dtype or shape, an array, or a list."""
    kind, array = draw.whole(0, 5), np.array(value.numpy())
    copied = value.base.copied
    if kind == 0:
        with np.errstate(all="ignore"):
            return Input(Base(array.astype(draw.pick(DTYPES)), False, copied))
    if kind == 1:
        return Input(Base(array[None], False, copied))
    if kind == 2:
        return Input(Base(array.reshape(-1)[: array.size // 2], False, copied))
    if kind == 3:
        wider = np.zeros([n + draw.whole(0, 1) for n in array.shape], array.dtype)
        return Input(Base(wider, False, copied))
    return array if kind == 4 else array.tolist()
