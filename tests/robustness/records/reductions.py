"""Reductions along axes, running sums, sorting, norms, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from tests.robustness.cases import Case, Draw
from tests.robustness.compare import SOLVED, SUMS, Tolerance
from tests.robustness.record import Record

EXTREMES = Tolerance(4, 0, 0, "an element is chosen, not computed")


def reduced(kinds: str, values: str = "normal", empty: bool = True, low: int = 0) -> Callable[[Draw], Case]:
    """A tensor, axes, keepdim; ``empty`` says whether the reduction of no element has a value."""

    def draw(d: Draw) -> Case:
        x = d.input(d.shape(low), d.dtype(kinds), values)
        case = Case([x], {"dim": d.axes(len(x.shape)), "keepdim": d.chance(0.4)})
        case.valid = empty or 0 not in x.shape
        return case

    return draw


def _axes(dim: Any, ndim: int, none_is_all: bool = True) -> tuple[int, ...]:
    """The axes that a call names; an empty list of them names all, as in PyTorch, but not to ``any`` and ``all``."""
    if dim is None or (dim == () and none_is_all):
        return tuple(range(ndim))
    return tuple(sorted(a % ndim for a in (dim if isinstance(dim, tuple) else (dim,)))) if ndim else ()


def _over(f: Callable[..., Any], none_is_all: bool = True) -> Callable[..., Any]:
    def oracle(x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        return f(x, axis=_axes(dim, x.ndim, none_is_all), keepdims=keepdim, **options)

    return oracle


def _sum(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.sum(x, axis, keepdims=keepdims, dtype=None if x.dtype.kind == "f" else np.int64)


def _nansum(x: Any, axis: Any, keepdims: bool) -> Any:
    return _sum(np.where(np.isnan(x), np.zeros((), x.dtype), x), axis, keepdims)


def _nanmean(x: Any, axis: Any, keepdims: bool) -> Any:
    return _nansum(x, axis, keepdims) / np.sum(~np.isnan(x), axis, keepdims=keepdims)


def _prod(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.prod(x, axis, keepdims=keepdims, dtype=None if x.dtype.kind == "f" else np.int64)


def _count(x: Any, axis: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axis)


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    return np.sum(x, axis, keepdims=keepdims) / np.float64(_count(x, axis))


def _var(x: Any, axis: Any, keepdims: bool, unbiased: bool = True) -> Any:
    count = np.float64(_count(x, axis))
    centred = x - np.sum(x, axis, keepdims=True) / count
    left = np.sum(centred, axis, keepdims=True) / count  # by how much the mean was rounded
    centred = centred - np.where(np.isfinite(left), left, 0)
    divisor = count - int(unbiased)
    total = np.sum(centred * centred, axis, keepdims=keepdims)
    return total / divisor if divisor > 0 else np.full(total.shape, np.nan)


def _std(x: Any, axis: Any, keepdims: bool, unbiased: bool = True) -> Any:
    return np.sqrt(_var(x, axis, keepdims, unbiased))


def _logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    top = np.max(x, axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    out = np.log(np.sum(np.exp(x - top), axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis)


def _norm(x: Any, axis: Any, keepdims: bool, p: float) -> Any:
    size = np.abs(x)
    if p == math.inf:
        return np.max(size, axis, keepdims=keepdims)
    top = np.max(size, axis, keepdims=True, initial=0)
    safe = np.where((top > 0) & np.isfinite(top), top, 1)
    out = np.sum((size / safe) ** p, axis, keepdims=True) ** (1 / p) * safe
    return out if keepdims else np.squeeze(out, axis)


def _peer(name: str, **renamed: str) -> Callable[..., Any]:
    def peer(torch: Any, x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        axes = _axes(dim, x.ndim, name not in ("any", "all"))
        options = {renamed.get(k, k): v for k, v in options.items()}
        if not axes:  # to PyTorch no axes are all axes
            x, axes = x.unsqueeze(0), (0,)
            return getattr(torch, name)(x, dim=axes, keepdim=False, **options)
        return getattr(torch, name)(x, dim=axes, keepdim=keepdim, **options)

    return peer


def _peer_prod(torch: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """PyTorch takes one axis, or all: several are first made one."""
    axes = _axes(dim, x.ndim)
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdim or a not in axes)
    if dim in (None, ()):
        return torch.prod(x).reshape(kept)
    if not axes:
        return x.clone()
    others = [a for a in range(x.ndim) if a not in axes]
    return torch.prod(x.permute(*others, *axes).flatten(len(others)), -1).reshape(kept)


def _peer_norm(torch: Any, x: Any, dim: Any = None, keepdim: bool = False, p: float = 2) -> Any:
    axes = _axes(dim, x.ndim)
    if not axes:
        x, axes, keepdim = x.unsqueeze(0), (0,), False
    return torch.linalg.vector_norm(x, p, axes, keepdim)


def _with(draw: Callable[[Draw], Case], **options: Any) -> Callable[[Draw], Case]:
    """Cases with options more, each drawn from several values."""

    def drawn(d: Draw) -> Case:
        case = draw(d)
        case.options |= {name: d.pick(values) for name, values in options.items()}
        return case

    return drawn


def _along(kinds: str, values: str, keepdim: bool = True, empty: bool = False) -> Callable[[Draw], Case]:
    """A tensor and one axis."""

    def draw(d: Draw) -> Case:
        x = d.input(d.shape(1), d.dtype(kinds), values)
        options: dict[str, Any] = {"dim": d.axis(len(x.shape))}
        if keepdim:
            options["keepdim"] = d.chance(0.4)
        return Case([x], options, empty or 0 not in x.shape)

    return draw


def _extreme(name: str) -> Callable[..., Any]:
    def oracle(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return getattr(np, name)(x, keepdims=keepdim)
        index = getattr(np, f"arg{name}")(x, dim)
        values = np.take_along_axis(x, np.expand_dims(index, dim), dim)
        index = np.expand_dims(index, dim)
        return (values, index) if keepdim else (np.squeeze(values, dim), np.squeeze(index, dim))

    return oracle


def _peer_extreme(name: str) -> Callable[..., Any]:
    def peer(torch: Any, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            out = getattr(torch, name)(x)
            return out.reshape((1,) * x.ndim) if keepdim else out
        # The first of equal elements, as the documentation says; PyTorch leaves open which it takes.
        index = torch.from_numpy(np.expand_dims(getattr(np, f"arg{name}")(x.detach().numpy(), dim), dim))
        values = torch.gather(x, dim, index)
        return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))

    return peer


def _arg(name: str) -> Callable[..., Any]:
    def oracle(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return getattr(np, name)(x, dim, keepdims=keepdim)

    return oracle


def _drawn_extreme(d: Draw) -> Case:
    if d.chance(0.4):
        x = d.input(d.shape(), d.dtype("fi"), "whole")
        return Case([x], {"keepdim": d.chance(0.3)}, 0 not in x.shape)
    return _along("fi", "whole")(d)


def _sorted(x: Any, dim: int = -1, descending: bool = False) -> Any:
    turned = np.flip(x, dim) if descending else x
    index = np.argsort(turned, dim, kind="stable")
    if descending:
        index = np.flip(x.shape[dim] - 1 - index, dim)
    return np.take_along_axis(x, index, dim), index


def _softmax(x: Any, dim: int) -> Any:
    shifted = np.exp(x - np.max(x, dim, keepdims=True)) if x.size else x
    return shifted / shifted.sum(dim, keepdims=True)


def _log_softmax(x: Any, dim: int) -> Any:
    if not x.size:
        return x
    shifted = x - np.max(x, dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


def _methods(record: Record, name: str, weight: float = 0.2) -> list[Record]:
    """The record, and that of the method of the same name."""
    if not hasattr(alpha.Tensor, name):
        return [record]
    fields = dict(record.__dict__)
    fields.update(name=f"alpha.Tensor.{name}", weight=weight, covers=())
    return [record, Record(**fields)]


def _records() -> list[Record]:
    unbiased = {"unbiased": (True, False)}
    softmax_draw = _along("f", "normal", keepdim=False, empty=True)
    table = {
        "sum": Record("alpha.sum", reduced("fib"), _over(_sum), _peer("sum"), SUMS),
        "mean": Record("alpha.mean", reduced("f"), _over(_mean), _peer("mean"), SUMS),
        "var": Record("alpha.var", _with(reduced("f"), **unbiased), _over(_var), _peer("var"), SOLVED, solves=True),
        "std": Record("alpha.std", _with(reduced("f"), **unbiased), _over(_std), _peer("std"), SOLVED, solves=True),
        "prod": Record("alpha.prod", reduced("fib", "whole"), _over(_prod), _peer_prod, SUMS),
        "any": Record("alpha.any", reduced("fib", "whole"), _over(np.any, False), _peer("any"), gradient=False),
        "all": Record("alpha.all", reduced("fib", "whole"), _over(np.all, False), _peer("all"), gradient=False),
        "logsumexp": Record(
            "alpha.logsumexp",
            reduced("f", empty=False),
            _over(_logsumexp),
            _peer("logsumexp"),
            Tolerance(64, 16, 0, "log of a sum"),
        ),
        "norm": Record(
            "alpha.norm",
            _with(reduced("f", empty=False), p=(2, 1, math.inf, 3, 0.5, 2.5)),
            _over(_norm),
            _peer_norm,
            Tolerance(256, 64, 0, "powers and roots of sums"),
            solves=True,
        ),
        "amax": Record("alpha.amax", reduced("fi", "whole", empty=False), _over(np.max), _peer("amax"), EXTREMES),
        "amin": Record("alpha.amin", reduced("fi", "whole", empty=False), _over(np.min), _peer("amin"), EXTREMES),
        "nansum": Record("alpha.nansum", reduced("fi"), _over(_nansum), _peer("nansum"), SUMS),
        "nanmean": Record("alpha.nanmean", reduced("f"), _over(_nanmean), _peer("nanmean"), SUMS),
        "count_nonzero": Record(
            "alpha.count_nonzero",
            lambda d: Case([d.input(d.shape(), d.dtype("fib"), "whole")]),
            lambda x: np.asarray(np.count_nonzero(x)),
            lambda t, x: t.count_nonzero(x),
            gradient=False,
        ),
        "max": Record("alpha.max", _drawn_extreme, _extreme("max"), _peer_extreme("max"), EXTREMES),
        "min": Record("alpha.min", _drawn_extreme, _extreme("min"), _peer_extreme("min"), EXTREMES),
        "argmax": Record("alpha.argmax", _drawn_extreme, _arg("argmax"), None, gradient=False),
        "argmin": Record("alpha.argmin", _drawn_extreme, _arg("argmin"), None, gradient=False),
        "cumsum": Record(
            "alpha.cumsum",
            _along("fib", "normal", keepdim=False, empty=True),
            lambda x, dim: np.cumsum(x, dim, dtype=x.dtype if x.dtype.kind == "f" else np.int64),
            lambda t, x, dim: t.cumsum(x, dim),
            SUMS,
        ),
        "sort": Record(
            "alpha.sort",
            _with(_along("fi", "whole", keepdim=False, empty=True), descending=(True, False)),
            _sorted,
            lambda t, x, dim, descending: t.sort(x, dim=dim, descending=descending, stable=True),
            EXTREMES,
        ),
        "softmax": Record(
            "alpha.softmax",
            softmax_draw,
            _softmax,
            lambda t, x, dim: t.softmax(x, dim),
            SUMS,
            covers=("nn.functional.softmax",),
        ),
        "softmin": Record(
            "alpha.softmin",
            softmax_draw,
            lambda x, dim: _softmax(-x, dim),
            lambda t, x, dim: t.nn.functional.softmin(x, dim),
            Tolerance(64, 16, 0, "exponentials over their sum"),
            covers=("nn.functional.softmin",),
        ),
        "log_softmax": Record(
            "alpha.log_softmax",
            softmax_draw,
            _log_softmax,
            lambda t, x, dim: t.log_softmax(x, dim),
            SUMS,
            covers=("nn.functional.log_softmax",),
        ),
    }
    records: list[Record] = []
    for name, record in table.items():
        plain = name not in ("argmax", "argmin")  # whose methods have no keepdim
        records += _methods(record, name) if plain else [record]
    for name in ("argmax", "argmin"):
        draw = _along("fi", "whole", keepdim=False)
        records.append(Record(f"alpha.Tensor.{name}", draw, _arg(name), None, gradient=False, weight=0.2))
    return records


RECORDS = _records()
