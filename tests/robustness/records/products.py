"""Products of matrices and vectors, and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests import oracles
from tests.robustness.cases import Case, Draw, Input
from tests.robustness.compare import SUMS, Tolerance
from tests.robustness.record import Record

DEEP = Tolerance(256, 256, 0, "Winograd's transforms and sums of a few thousand products, whose roundings add up")

# -- matrices ----------------------------------------------------------------------------------------------------


def _length(d: Draw) -> int:
    return d.length(0 if d.chance(0.1) else 1)


def _matmul(d: Draw) -> Case:
    dtype = d.dtype()
    rows, inner, columns = d.fit([_length(d), _length(d), _length(d)])
    form = d.py.random()
    if form < 0.4:
        left: tuple[int, ...] = (rows, inner)
        right: tuple[int, ...] = (inner, columns)
    elif form < 0.5:
        left, right = (inner,), (inner, columns)
    elif form < 0.6:
        left, right = (rows, inner), (inner,)
    elif form < 0.65:
        left, right = (inner,), (inner,)
    else:
        batch = tuple(d.whole(0 if d.chance(0.1) else 1, 3) for _ in range(d.whole(1, 2)))
        left, right = (*d.broadcastable(batch), rows, inner), (*d.broadcastable(batch), inner, columns)
        if d.chance(0.15):
            right = (inner,) if d.chance(0.5) else (inner, columns)
    x = d.input(left, dtype)
    if left == right and d.chance(0.3):
        return Case([x, x])
    return Case([x, d.input(right, dtype)])


def linear_case(d: Draw) -> Case:
    """x, the weight, and a bias or None."""
    dtype = d.dtype()
    rows, inner, out = d.fit([_length(d), _length(d), _length(d)])
    shape = d.pick(((rows, inner), (rows, inner), (1, inner), (inner,), (2, rows, inner), (1, 1, inner)))
    bias = d.input((out,), dtype) if d.chance(0.6) else None
    return Case([d.input(shape, dtype), d.input((out, inner), dtype), bias])


def _linear(d: Draw) -> Case:
    case = linear_case(d)
    return Case(case.args, {"activation": _halved}) if d.chance(0.3) else case


def _halved(x: Any) -> Any:
    """An activation that the three libraries take."""
    return x * 0.5


def linear(x: Any, weight: Any, bias: Any = None, activation: Any = None) -> Any:
    """x @ weight.T + bias, and the activation of it."""
    out = x @ weight.T
    out = out if bias is None else out + bias
    return out if activation is None else activation(out)


def _peer_linear(torch: Any, x: Any, w: Any, b: Any, activation: Any = None) -> Any:
    out = torch.nn.functional.linear(x, w, b)
    return out if activation is None else activation(out)


def _vectors(equal: bool) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        dtype, n = d.dtype(), _length(d)
        return Case([d.input((n,), dtype), d.input((n if equal else _length(d),), dtype)])

    return draw


def _gemv(d: Draw) -> Case:
    dtype, trans = d.dtype(), d.chance(0.5)
    m, n = d.fit([_length(d), _length(d)])
    return Case([d.input((m, n), dtype), d.input((m if trans else n,), dtype)], {"trans": trans})


def _ger(written: bool) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        dtype = d.dtype()
        m, n = d.fit([_length(d), _length(d)])
        a = d.input((m, n), dtype, written=written, views=0.5)
        x = d.input((m,), dtype)
        y = x if m == n and d.chance(0.3) else d.input((n,), dtype)
        return Case([a, x, y], {"alpha": d.pick((1.0, 0.5, -2, 0.0))})

    return draw


def _ger_written(A: Any, x: Any, y: Any, alpha: float) -> None:
    A[...] = A + alpha * np.outer(np.array(x), np.array(y))


def _peer_ger_written(torch: Any, A: Any, x: Any, y: Any, alpha: float) -> None:
    A.add_(torch.outer(x.clone(), y.clone()), alpha=alpha)


MATRICES = [
    Record(
        "alpha.matmul",
        _matmul,
        np.matmul,
        lambda t, x, y: t.matmul(x, y),
        SUMS,
        solves=True,
        weight=2,
        covers=("alpha.linalg.matmul",),
    ),
    Record(
        "operator.matmul",
        _matmul,
        np.matmul,
        lambda t, x, y: t.matmul(x, y),
        SUMS,
        solves=True,
        weight=0.5,
        covers=("alpha.Tensor.__matmul__", "alpha.Tensor.__rmatmul__"),
    ),
    Record(
        "alpha.linear",
        _linear,
        linear,
        _peer_linear,
        SUMS,
        solves=True,
        weight=2,
        covers=("nn.functional.linear",),
    ),
    Record(
        "alpha.outer",
        _vectors(False),
        np.outer,
        lambda t, x, y: t.outer(x, y),
        SUMS,
        solves=True,
        covers=("alpha.linalg.outer",),
    ),
    Record(
        "alpha.dot",
        _vectors(True),
        np.dot,
        lambda t, x, y: t.dot(x, y),
        SUMS,
        solves=True,
        covers=("alpha.linalg.dot",),
    ),
    Record(
        "alpha.linalg.gemv",
        _gemv,
        lambda A, x, trans: (A.T if trans else A) @ x,
        lambda t, A, x, trans: (A.T if trans else A) @ x,
        SUMS,
        solves=True,
    ),
    Record(
        "alpha.linalg.ger",
        _ger(False),
        lambda A, x, y, alpha: A + alpha * np.outer(x, y),
        lambda t, A, x, y, alpha: A + alpha * t.outer(x, y),
        SUMS,
        solves=True,
    ),
    Record("alpha.linalg.ger_", _ger(True), _ger_written, _peer_ger_written, SUMS, solves=True),
]


# -- convolutions ------------------------------------------------------------------------------------------------


def _channels(d: Draw) -> int:
    return int(d.pick((1, 1, 2, 3, 4, 5, 8, 16, 17, 32, 33) if d.limit > 200 else (1, 2, 3, 4, 5, 8)))


def _steps(d: Draw, axes: int, values: tuple[int, ...]) -> Any:
    one = d.pick(values)
    return one if d.chance(0.6) else tuple(d.pick(values) for _ in range(axes))


def _per_axis(value: Any, axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else tuple(value)


def convolution(axes: int, transposed: bool) -> Callable[[Draw], Case]:
    """x, weight, bias and steps of a convolution of so many axes; its result has an element at least."""

    def draw(d: Draw) -> Case:
        d.values = "ordinary" if d.chance(0.8) else d.values
        dtype, groups = d.dtype(), d.pick((1, 1, 1, 2, 3))
        inner, outer = _channels(d) * groups, _channels(d) * groups
        stride, dilation = _steps(d, axes, (1, 1, 2, 3)), _steps(d, axes, (1, 1, 1, 2))
        padding = _steps(d, axes, (0, 0, 1, 2, 3))
        filter = [d.pick((1, 2, 3, 3, 4, 5) if axes < 3 else (1, 2, 3)) for _ in range(axes)]
        options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        sizes = []
        for f, s, p, k in zip(
            filter, _per_axis(stride, axes), _per_axis(padding, axes), _per_axis(dilation, axes), strict=True
        ):
            extent = (f - 1) * k + 1
            if transposed:
                sizes.append(max(1, -(-(1 + 2 * p - extent) // s) + 1) + d.whole(0, 3))
            else:
                sizes.append(max(1, extent - 2 * p) + d.whole(0, 6 if axes < 3 else 3))
        if d.limit > 5000:
            sizes = [n + d.whole(0, 20) for n in sizes]
        images = d.pick((1, 1, 2, 3, 5)) if d.limit <= 5000 else d.pick((1, 2, 16, 33))
        results = [n * s if transposed else n for n, s in zip(sizes, _per_axis(stride, axes), strict=True)]
        images = max(1, min(images, 3 * d.limit // max(inner * math.prod(sizes), outer * math.prod(results))))
        if transposed:
            limits = [max(s, k) - 1 for s, k in zip(_per_axis(stride, axes), _per_axis(dilation, axes), strict=True)]
            options["output_padding"] = tuple(d.whole(0, n) for n in limits)
            shape = (inner, *filter, outer // groups)
        else:
            shape = (outer, *filter, inner // groups)
            if d.chance(0.06):
                options["padding"] = "valid"
                sizes = [n + 2 * p for n, p in zip(sizes, _per_axis(padding, axes), strict=True)]
        x, weight = d.input((images, *sizes, inner), dtype), d.input(shape, dtype)
        return Case([x, weight, d.input((outer,), dtype) if d.chance(0.5) else None], options)

    return draw


def convolved(
    x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """From the definition, with the padding's zeros written out."""
    axes = x.ndim - 2
    pads = (0,) * axes if padding == "valid" else _per_axis(padding, axes)
    y = oracles.convolution(x, w, _per_axis(stride, axes), pads, _per_axis(dilation, axes), groups)
    return y if bias is None else y + bias


def transposed(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The gradient of a convolution for its input, from the definition."""
    axes = x.ndim - 2
    steps = [_per_axis(v, axes) for v in (stride, padding, dilation, output_padding)]
    sizes = [
        (n - 1) * s - 2 * p + k * (f - 1) + e + 1
        for n, f, s, p, k, e in zip(x.shape[1:-1], w.shape[1:-1], *steps, strict=True)
    ]
    empty = np.zeros((x.shape[0], *sizes, w.shape[-1] * groups))
    y, _ = oracles.convolution_gradients(empty, w, x, steps[0], steps[1], steps[2], groups)
    return y if bias is None else y + bias


def _first(x: Any) -> Any:
    """Channels from last to second, as PyTorch has them."""
    return x.movedim(-1, 1)


def peer(axes: int, transposed: bool) -> Callable[..., Any]:
    """PyTorch's convolution of channels-last tensors."""
    name = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"

    def call(torch: Any, x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
        return getattr(torch.nn.functional, name)(_first(x), _first(w), bias, **options).movedim(1, -1)

    return call


def _fused(d: Draw) -> Case:
    """conv2d with a residual and an activation."""
    case = convolution(2, False)(d)
    x, w = case.args[:2]
    shape = convolved(np.zeros(x.shape), np.zeros(w.shape), None, **case.options).shape
    if d.chance(0.7):
        case.options["residual"] = d.input(shape, x.dtype.name)
    case.options["activation"] = d.pick((None, "relu", "leaky_relu"))
    if case.options["activation"] == "leaky_relu":
        case.options["negative_slope"] = d.pick((0.01, 0.2, 0.0))
    return case


def activated(y: Any, residual: Any, activation: str | None, negative_slope: float) -> Any:
    """act(y + residual)."""
    y = y if residual is None else y + residual
    slope = {None: 1.0, "relu": 0.0, "leaky_relu": negative_slope}[activation]
    return np.where(y > 0, y, y * slope)


def _convolved_fused(
    x: Any,
    w: Any,
    bias: Any = None,
    residual: Any = None,
    activation: Any = None,
    negative_slope: float = 0.01,
    **options: Any,
) -> Any:
    return activated(convolved(x, w, bias, **options), residual, activation, negative_slope)


def peer_activated(torch: Any, y: Any, residual: Any, activation: str | None, negative_slope: float) -> Any:
    """The same in PyTorch."""
    y = y if residual is None else y + residual
    if activation is None:
        return y
    return torch.relu(y) if activation == "relu" else torch.nn.functional.leaky_relu(y, negative_slope)


def _peer_fused(
    torch: Any,
    x: Any,
    w: Any,
    bias: Any = None,
    residual: Any = None,
    activation: Any = None,
    negative_slope: float = 0.01,
    **options: Any,
) -> Any:
    return peer_activated(torch, peer(2, False)(torch, x, w, bias, **options), residual, activation, negative_slope)


def _convolutions() -> list[Record]:
    records = []
    for axes in (1, 2, 3):
        for back, oracle in ((False, convolved), (True, transposed)):
            name = f"conv_transpose{axes}d" if back else f"conv{axes}d"
            records.append(
                Record(
                    f"alpha.{name}",
                    convolution(axes, back),
                    oracle,
                    peer(axes, back),
                    DEEP,
                    solves=True,
                    skips=True,
                    weight=1.5 if axes == 2 else 0.6,
                    covers=(f"nn.functional.{name}",),
                )
            )
    records.append(Record("alpha.conv2d", _fused, _convolved_fused, _peer_fused, DEEP, solves=True, skips=True))
    return records


def is_input(value: Any) -> bool:
    """Whether an argument stands for a tensor."""
    return isinstance(value, Input)


RECORDS = [*MATRICES, *_convolutions()]
