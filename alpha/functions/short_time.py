"""Short-time Fourier transforms: the spectra of stretches of a signal that overlap, and the signal of such spectra."""

from __future__ import annotations

import math
import warnings
from typing import Any

from alpha import dtypes
from alpha.arguments import flag, one_of, whole
from alpha.autograd import Function
from alpha.errors import ArgumentError, DtypeError, NumericsError, ShapeError
from alpha.functions.casting import cast
from alpha.functions.complex_numbers import view_as_real
from alpha.functions.fourier import fft, ifft, irfft, rfft
from alpha.functions.operands import call, check_room, check_tensor
from alpha.functions.padding import MODES, pad
from alpha.functions.shape import transpose
from alpha.functions.views import narrow
from alpha.tensor import Tensor

__all__ = ["istft", "stft"]

_LEAST_ENVELOPE = 1e-11
"""The least sum of squares of windows by which a signal is divided."""


class Frames(Function):
    """Stretches of signals (..., L), so many numbers each, that begin ``hop`` numbers after each other: (..., T, N)."""

    fresh = True

    def forward(self, x: Tensor, size: int, hop: int) -> Tensor:
        self.hop, self.length = hop, x.shape[-1]
        shape = (*x.shape[:-1], (self.length - size) // hop + 1, size)
        check_room(x.engine, shape, x.dtype)
        strides = (*x.strides[:-1], hop * x.strides[-1], x.strides[-1])
        return x.engine.copied(x.strided(x.offset, shape, strides), range(len(shape)))

    def backward(self, grad: Tensor) -> Tensor:
        return call(Signal, grad, self.hop, self.length)


class Signal(Function):
    """Stretches (..., T, N) added up where they lie in signals (..., L)."""

    fresh = True

    def forward(self, x: Tensor, hop: int, length: int) -> Tensor:
        self.size, self.hop = x.shape[-1], hop
        engine, (count, size) = x.engine, x.shape[-2:]
        pieces = -(-size // hop)
        if pieces * hop > size:
            behind = (*(0,) * (x.ndim - 1), pieces * hop - size)
            x = engine.pad(x, (0,) * x.ndim, behind, "constant", 0)
        room = max((count + pieces - 1) * hop, length)
        check_room(engine, (*x.shape[:-2], room), x.dtype)
        out = engine.full((*x.shape[:-2], room), 0, x.dtype)
        batch, strides = x.shape[:-2], out.strides
        for piece in range(pieces):
            start, shape = piece * hop, (*batch, count, hop)
            here = out.strided(out.offset + start * strides[-1], shape, (*strides[:-1], hop * strides[-1], strides[-1]))
            engine.elementwise("add", here, x.strided(x.offset + start * x.strides[-1], shape, x.strides), out=here)
        return engine.copied(out.strided(out.offset, (*batch, length), strides))

    def backward(self, grad: Tensor) -> Tensor:
        return call(Frames, grad, self.size, self.hop)


def _sizes(name: str, n_fft: Any, hop_length: Any, win_length: Any) -> tuple[int, int, int]:
    """The numbers of a transform, between the beginnings of stretches, and of a window."""
    size = whole(name, "n_fft", n_fft, 1)
    hop = size // 4 if hop_length is None else whole(name, "hop_length", hop_length)
    width = size if win_length is None else whole(name, "win_length", win_length)
    if hop < 1:
        raise ArgumentError(f"[{name}] expected hop_length >= 1, got {hop}: by default it is n_fft // 4")
    if not 1 <= width <= size:
        raise ArgumentError(f"[{name}] expected win_length in 1..{size}, n_fft, got {width}")
    return size, hop, width


def _window(name: str, x: Tensor, window: Tensor | None, width: int, size: int) -> Tensor | None:
    """The window with zeros on both sides up to the numbers of a transform; None where all weights are 1."""
    if window is not None:
        check_tensor(name, window)
        x.engine.check_owner(name, window)
        if window.shape != (width,):
            raise ShapeError(f"[{name}] expected a window of shape ({width},), win_length, got {window.shape}")
        window = window if dtypes.has_gradients(window.dtype) else cast(window, dtypes.default_float)
    elif width < size:
        window = x.engine.full((width,), 1, dtypes.real_of(x.dtype))
    if window is None or width == size:
        return window
    before = (size - width) // 2
    return pad(window, (before, size - width - before))


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The short-time Fourier transform: of each stretch of a signal, times the window, the Fourier transform.

    Args:
        input: (L,), or (B, L): floats or complex numbers.
        n_fft: N, how many numbers are transformed.
        hop_length: from the beginning of a stretch to that of the next; by default n_fft // 4.
        win_length: how many numbers of a stretch the window weights; those on both sides count as 0. By default n_fft.
        window: (win_length,); ones unless it is given.
        center: pad the signal by n_fft // 2 on both sides, so that stretch t has its middle at t * hop_length.
        pad_mode: how, as for ``nn.functional.pad``.
        normalized: divide by sqrt(n_fft).
        onesided: give the first n_fft // 2 + 1 frequencies alone; by default where the input and the window are real.
        return_complex: False gives real and imaginary parts as a last axis. It must be said for real inputs.
        align_to_window: where not ``center``: stretches are as long as the window, so that the last ones fit.

    Returns:
        (B, frequencies, T), T stretches, without B where the input has none.
    """
    name = "stft"
    check_tensor(name, input, *[] if window is None else [window])
    if not dtypes.has_gradients(input.dtype):
        raise DtypeError(f"[{name}] expected floats or complex numbers, got {input.dtype}: cast it with .float()")
    are_complex = dtypes.is_complex(input.dtype) or (window is not None and dtypes.is_complex(window.dtype))
    if return_complex is None and not are_complex:
        raise ArgumentError(f"[{name}] expected return_complex for a real input, got None: give return_complex=True")
    is_half = not are_complex if onesided is None else flag(name, "onesided", onesided)
    if is_half and are_complex:
        raise ArgumentError(
            f"[{name}] expected onesided=False for complex numbers, got True: their second half is another"
        )
    size, hop, width = _sizes(name, n_fft, hop_length, win_length)
    if input.ndim not in (1, 2):
        raise ShapeError(f"[{name}] expected a signal (L,) or several (B, L), got shape {input.shape}")
    x = _padded(name, input, size, width, flag(name, "center", center), pad_mode, align_to_window)
    if x.shape[-1] < size:
        raise ShapeError(f"[{name}] expected n_fft <= {x.shape[-1]}, the signal's length, got {size}: pad the signal")
    weights = _window(name, x, window, width, size)
    frames = call(Frames, x, size, hop)
    norm = "ortho" if flag(name, "normalized", normalized) else "backward"
    spectra = (rfft if is_half else fft)(frames if weights is None else frames * weights, norm=norm)
    found = transpose(spectra, -1, -2)
    return found if return_complex is None or flag(name, "return_complex", return_complex) else view_as_real(found)


def _padded(name: str, x: Tensor, size: int, width: int, center: bool, mode: Any, align: Any) -> Tensor:
    """The signal with what ``center`` or ``align_to_window`` puts before it and behind."""
    if center:
        if align is not None:
            raise ArgumentError(f"[{name}] expected align_to_window with center=False alone, got {align}: leave it out")
        one_of(name, "pad_mode", mode, ["constant", *MODES])
        return pad(x, (size // 2, size // 2), mode)
    if align is not None and flag(name, "align_to_window", align):
        before = (size - width) // 2
        return pad(x, (before, size - width - before))
    return x


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal of which ``stft`` gives these spectra, or, where there is none, the one nearest in least squares.

    Args:
        input: (frequencies, T) or (B, frequencies, T), complex, T >= 1.
        n_fft, hop_length, win_length, window, center, normalized: those of ``stft``; hop_length is at most win_length.
        onesided: there are n_fft // 2 + 1 frequencies; by default where there are not n_fft.
        length: of the signal, which is cut or filled up with zeros, with a warning; by default all that is known.
        return_complex: the signal is complex; all n_fft frequencies are given.

    Returns:
        (length,), or (B, length).

    Raises:
        NumericsError: the windows' squares sum to 0 somewhere within the result: the signal there is not determined.
        DtypeError, ShapeError, ArgumentError: for what does not fit.

    Source: Griffin and Lim, IEEE Trans. ASSP 32(2), 1984.
    """
    name = "istft"
    size, hop, width = _sizes(name, n_fft, hop_length, win_length)
    is_complex, is_half = _checked_spectra(name, input, size, onesided, flag(name, "return_complex", return_complex))
    if hop > width:
        raise ArgumentError(f"[{name}] expected hop_length in 1..{width}, win_length, got {hop}")
    if window is not None and isinstance(window, Tensor) and dtypes.is_complex(window.dtype) and not is_complex:
        raise ArgumentError(f"[{name}] expected return_complex=True with a complex window, got False")
    count = input.shape[-1]
    weights = _window(name, input, window, width, size)
    if weights is None:
        weights = input.engine.full((size,), 1, dtypes.real_of(input.dtype))
    spectra, norm = transpose(input, -1, -2), "ortho" if flag(name, "normalized", normalized) else "backward"
    if is_complex:
        frames = ifft(spectra, norm=norm)
    else:
        frames = irfft(spectra if is_half else narrow(spectra, -1, 0, size // 2 + 1), size, norm=norm)
    known = size + hop * (count - 1)
    start = size // 2 if flag(name, "center", center) else 0
    end = known - start if length is None else start + whole(name, "length", length, 1)
    if end <= start:
        raise ShapeError(f"[{name}] expected stretches beyond what center padded, got {count}: use center=False")
    taken = min(end, known) - start
    y = narrow(call(Signal, frames * weights, hop, known), -1, start, taken)
    squares = call(Signal, (weights * weights).expand((count, size)), hop, known)
    envelope = narrow(squares, -1, start, taken)
    least = envelope.detach().abs().min().item()
    if not math.isnan(least) and least < _LEAST_ENVELOPE:
        raise NumericsError(
            f"[{name}] expected windows whose squares sum to more than {_LEAST_ENVELOPE} everywhere, got {least}: use "
            "center=True, a smaller hop_length, or a window that is not 0 at its ends"
        )
    y = y / envelope
    if end <= known:
        return y
    warnings.warn(
        f"[{name}] expected length <= {known - start}, what the stretches hold, got {length}: zeros follow",
        UserWarning,
        stacklevel=2,
    )
    return pad(y, (0, end - known))


def _checked_spectra(name: str, x: Any, size: int, onesided: Any, is_complex: bool) -> tuple[bool, bool]:
    """Whether the signal is complex, and whether half of the frequencies are given; an error where they do not fit."""
    check_tensor(name, x)
    if not dtypes.is_complex(x.dtype):
        raise DtypeError(
            f"[{name}] expected complex numbers, got {x.dtype}: alpha.view_as_complex makes them of pairs of parts"
        )
    if x.ndim not in (2, 3) or 0 in x.shape:
        raise ShapeError(f"[{name}] expected spectra (frequencies, T) or (B, frequencies, T), got shape {x.shape}")
    is_half = x.shape[-2] != size if onesided is None else flag(name, "onesided", onesided)
    wanted = size // 2 + 1 if is_half else size
    if x.shape[-2] != wanted:
        raise ShapeError(f"[{name}] expected {wanted} frequencies for n_fft={size}, got x: {x.shape}")
    if is_complex and is_half:
        raise ArgumentError(f"[{name}] expected all n_fft frequencies with return_complex=True, got half of them")
    return is_complex, is_half
