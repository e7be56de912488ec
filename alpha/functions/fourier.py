"""Discrete Fourier transforms, which NumPy computes in the host's memory; ``alpha.fft`` has their public names.

Each is a linear function, whose gradient is its adjoint: that of a transform is the transform in the other direction,
scaled by the same factor. So gradients of any order are made of the functions themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, one_axis, whole, within_memory
from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.functions.casting import cast, clone
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.complex_numbers import real
from alpha.functions.operands import call, check_room, check_tensor
from alpha.functions.padding import Pad
from alpha.functions.views import narrow
from alpha.tensor import Tensor

Array = np.ndarray[Any, Any]

_OPPOSITE = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""Norms, by the norm with which the transform in the other direction has the same factor."""


# -- the three linear functions ----------------------------------------------------------------------------------


def _on_host(x: Tensor, compute: Callable[[Array], Array], dtype: dtypes.DType) -> Tensor:
    check_room(x.engine, x.shape, dtypes.complex_of(dtype))
    with np.errstate(all="ignore"):
        found = within_memory("fft", lambda: np.ascontiguousarray(compute(x.engine.to_numpy(x)), dtype))
        return x.engine.from_numpy(found)


class Transform(Function):
    """Complex numbers transformed along axes, forwards or back."""

    fresh = True

    def forward(self, x: Tensor, axes: Shape, norm: str, back: bool) -> Tensor:
        self.axes, self.norm, self.back = axes, norm, back
        compute = np.fft.ifftn if back else np.fft.fftn
        return _on_host(x, lambda a: compute(a, axes=axes, norm=norm), x.dtype)  # type: ignore[arg-type]

    def backward(self, grad: Tensor) -> Tensor:
        return call(Transform, grad, self.axes, _OPPOSITE[self.norm], not self.back)


class RealToHalf(Function):
    """Floats transformed forwards along axes: of the last one the first half, which the other half is conjugate to."""

    fresh = True

    def forward(self, x: Tensor, axes: Shape, norm: str) -> Tensor:
        self.length, self.axes, self.norm = x.shape[axes[-1]], axes, norm
        return _on_host(x, lambda a: np.fft.rfftn(a, axes=axes, norm=norm), dtypes.complex_of(x.dtype))  # type: ignore[arg-type]

    def backward(self, grad: Tensor) -> Tensor:
        whole_grad = resized(grad, {self.axes[-1]: self.length})
        return real(call(Transform, whole_grad, self.axes, _OPPOSITE[self.norm], True))


class HalfToReal(Function):
    """The first half of what floats transform to, transformed back along one axis to so many floats."""

    fresh = True

    def forward(self, x: Tensor, axis: int, length: int, norm: str) -> Tensor:
        self.axis, self.length, self.norm = axis, length, norm
        return _on_host(x, lambda a: np.fft.irfft(a, length, axis, norm), dtypes.real_of(x.dtype))  # type: ignore[arg-type]

    def backward(self, grad: Tensor) -> Tensor:
        found = call(RealToHalf, grad, (self.axis,), _OPPOSITE[self.norm])
        # Each number but the first, and of an even length the last, stands for its conjugate too.
        counts = np.full(self.length // 2 + 1, 2.0)
        counts[0] = 1
        if self.length % 2 == 0:
            counts[-1] = 1
        shape = [1] * found.ndim
        shape[self.axis] = len(counts)
        return found * grad.engine.from_numpy(counts.astype(grad.dtype).reshape(shape))


def resized(x: Tensor, lengths: dict[int, int]) -> Tensor:
    """x with the lengths of some axes changed: cut at their ends, or zeros added there."""
    after = [0] * x.ndim
    for axis, length in lengths.items():
        if length < x.shape[axis]:
            x = narrow(x, axis, 0, length)
        after[axis] = length - x.shape[axis]
    check_room(x.engine, tuple(n + more for n, more in zip(x.shape, after, strict=True)), x.dtype)
    return call(Pad, x, (0,) * x.ndim, tuple(after), 0) if any(after) else x


# -- arguments ---------------------------------------------------------------------------------------------------


def _floats(name: str, x: Any, complex_too: bool = True) -> Tensor:
    """The argument in host memory: floats, or complex numbers where allowed; bools and integers as floats."""
    check_tensor(name, x)
    if not x.engine.memory.is_on_host:
        raise DtypeError(
            f"[{name}] expected a tensor in the host's memory, got one on {x.engine.name}: move it with .to('cpu')"
        )
    if dtypes.is_complex(x.dtype):
        if not complex_too:
            raise DtypeError(f"[{name}] expected real numbers, got {x.dtype}: take .real, or the transform without r")
        found: Tensor = x
        return found
    if not dtypes.is_float(x.dtype):
        return cast(x, dtypes.default_float)
    if x.dtype not in dtypes.FLOATS:
        raise DtypeError(f"[{name}] expected {dtypes.float_names()} or complex numbers, got {x.dtype}: cast it first")
    return x  # type: ignore[no-any-return]


def _complex(name: str, x: Any) -> Tensor:
    value = _floats(name, x)
    return value if dtypes.is_complex(value.dtype) else cast(value, dtypes.complex_of(value.dtype))


def _norm(name: str, norm: Any) -> str:
    if norm is None:
        return "backward"
    if not isinstance(norm, str) or norm not in _OPPOSITE:
        raise ArgumentError(f"[{name}] expected norm as 'backward', 'ortho', 'forward' or None, got {described(norm)}")
    return norm


def _length(name: str, n: Any, usual: int) -> int:
    """The length that an axis is to have."""
    count = usual if n is None else whole(name, "n", n)
    if count < 1:
        raise ShapeError(f"[{name}] expected at least one number to transform, got {max(count, 0)}: give n or s")
    return count


def _lengths(name: str, x: Tensor, s: Any, dim: Any, usual: Any = None, half: bool = False) -> dict[int, int]:
    """Axes and the lengths that they are to have, in the order given.

    ``half``: the last axis is given as the first half of what is meant; ``usual``: axes where none are given.
    """
    dim = usual if dim is None and s is None else dim
    given = None if s is None else _ints(name, "s", s)
    if dim is None:
        count = x.ndim if given is None else len(given)
        if count > x.ndim:
            raise ShapeError(f"[{name}] expected s of at most {x.ndim} lengths for x: {x.shape}, got {count}")
        axes: tuple[int, ...] = tuple(range(x.ndim - count, x.ndim))
    else:
        axes = tuple([one_axis(name, axis, x.ndim) for axis in _ints(name, "dim", dim)])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"[{name}] expected dim to name each axis once, got {described(dim)}")
    if given is not None and len(given) != len(axes):
        raise ShapeError(f"[{name}] expected s and dim of one length, got {described(s)} and {described(dim)}")
    found = {}
    for place, axis in enumerate(axes):
        length = x.shape[axis]
        if half and place == len(axes) - 1:
            length = 2 * (length - 1)
        found[axis] = _length(name, None if given is None or given[place] == -1 else given[place], length)
    return found


def _ints(name: str, argument: str, value: Any) -> list[int]:
    if isinstance(value, int | np.integer):
        return [whole(name, argument, value)]
    if not isinstance(value, tuple | list):
        raise ArgumentError(f"[{name}] expected {argument} as a list of ints, got {described(value)}")
    return [whole(name, argument, one) for one in value]


def _some(name: str, lengths: dict[int, int]) -> dict[int, int]:
    """The lengths; ShapeError unless there is an axis: the last of them is halved."""
    if not lengths:
        raise ShapeError(f"[{name}] expected at least one axis to transform, got none: name one with dim")
    return lengths


# -- transforms along several axes -------------------------------------------------------------------------------


def _transformed(name: str, x: Any, s: Any, dim: Any, norm: Any, back: bool, usual: Any = None) -> Tensor:
    value = _complex(name, x)
    lengths, by = _lengths(name, value, s, dim, usual), _norm(name, norm)
    if not lengths:
        return clone(value)
    return call(Transform, resized(value, lengths), tuple(lengths), by, back)


def _of_real(name: str, x: Any, s: Any, dim: Any, norm: Any, usual: Any = None) -> Tensor:
    value = _floats(name, x, complex_too=False)
    lengths = _some(name, _lengths(name, value, s, dim, usual))
    return call(RealToHalf, resized(value, lengths), tuple(lengths), _norm(name, norm))


def _to_real(name: str, x: Any, s: Any, dim: Any, norm: Any, usual: Any = None, mirrored: bool = False) -> Tensor:
    """The inverse of ``_of_real``; ``mirrored``: of conjugates, and scaled as the other direction is."""
    value = _complex(name, x)
    lengths, by = _some(name, _lengths(name, value, s, dim, usual, half=True)), _norm(name, norm)
    if mirrored:
        value, by = conjugate(value), _OPPOSITE[by]
    *others, last = lengths
    value = resized(value, {**lengths, last: lengths[last] // 2 + 1})
    if others:
        value = call(Transform, value, tuple(others), by, True)
    return call(HalfToReal, value, last, lengths[last], by)


def _from_real(name: str, x: Any, s: Any, dim: Any, norm: Any, usual: Any = None) -> Tensor:
    """The inverse of ``_to_real`` where that is mirrored."""
    return conjugate(_of_real(name, x, s, dim, _OPPOSITE[_norm(name, norm)], usual))


def _one(name: str, n: Any) -> list[int] | None:
    """The length of one axis as a list, in which -1 would be the axis' own."""
    return None if n is None else [max(whole(name, "n", n), 0)]


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform along an axis: sum over j of input[j] exp(-2 pi i j k / n), k = 0 ... n - 1.

    Args:
        input: complex numbers, or floats; bools and integers become floats. float32 gives complex64.
        n: how many numbers: the axis is cut, or filled up with zeros. By default its length.
        dim: the axis.
        norm: what the sum is divided by: "backward" (or None) nothing, "ortho" sqrt(n), "forward" n.

    Raises:
        DtypeError, ShapeError, ArgumentError: for half-precision floats, tensors outside the host's memory, an n below
            1, an axis that there is not, another norm.
    """
    return _transformed("fft", input, _one("fft", n), [dim], norm, False)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``fft``: sum over k of input[k] exp(2 pi i j k / n); "backward" divides by n, "forward" by 1."""
    return _transformed("ifft", input, _one("ifft", n), [dim], norm, True)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """``fft`` of real numbers: its first n // 2 + 1 numbers, since the others are their conjugates."""
    return _of_real("rfft", input, _one("rfft", n), [dim], norm)


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``rfft``: n real numbers, by default 2 * (length - 1) of an axis of that length."""
    return _to_real("irfft", input, _one("irfft", n), [dim], norm)


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """``fft`` of a signal of which the first half is given, the other being conjugate to it: n real numbers.

    By default n is 2 * (length - 1).
    """
    return _to_real("hfft", input, _one("hfft", n), [dim], norm, mirrored=True)


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of ``hfft``: the first n // 2 + 1 numbers of ``ifft`` of real numbers."""
    return _from_real("ihfft", input, _one("ihfft", n), [dim], norm)


_LAST_TWO = (-2, -1)


def fft2(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
    """``fftn`` along two axes, the last ones unless others are named."""
    return _transformed("fft2", input, s, dim, norm, False)


def ifft2(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
    """``ifftn`` along two axes, the last ones unless others are named."""
    return _transformed("ifft2", input, s, dim, norm, True)


def rfft2(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
    """``rfftn`` along two axes, the last ones unless others are named."""
    return _of_real("rfft2", input, s, dim, norm)


def irfft2(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
    """``irfftn`` along two axes, the last ones unless others are named."""
    return _to_real("irfft2", input, s, dim, norm)


def hfft2(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
    """``hfftn`` along two axes, the last ones unless others are named."""
    return _to_real("hfft2", input, s, dim, norm, mirrored=True)


def ihfft2(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
    """``ihfftn`` along two axes, the last ones unless others are named."""
    return _from_real("ihfft2", input, s, dim, norm)


def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """``fft`` along several axes.

    Args:
        s: how many numbers along each of them, -1 for the axis' length.
        dim: the axes; by default the last ones that ``s`` has lengths for, or all.
        norm: as for ``fft``, n being the product of the lengths.
    """
    return _transformed("fftn", input, s, dim, norm, False)


def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of ``fftn``."""
    return _transformed("ifftn", input, s, dim, norm, True)


def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """``fftn`` of real numbers: of the last of the axes the first n // 2 + 1 numbers."""
    return _of_real("rfftn", input, s, dim, norm)


def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of ``rfftn``; ``s`` has the lengths of the real result."""
    return _to_real("irfftn", input, s, dim, norm)


def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """``fftn`` of a signal that is conjugate to itself mirrored, of whose last axis the first half is given."""
    return _to_real("hfftn", input, s, dim, norm, mirrored=True)


def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of ``hfftn``: of ``ifftn`` of real numbers, the first half of the last axis."""
    return _from_real("ihfftn", input, s, dim, norm)
